"""Publishing to one topic: checks, order per key, flow control, and a future for each message.

Begin with `topic.py`, then `publisher.py`.
May import, beside top modules: `client`, `client.admin`, `client.delays`, `core`.
"""
