"""Publishing to one topic: checks, order per key, flow control, and a future for each message.

Begin with `topic.py`, then `publisher.py`; for lanes `home_publisher.py`, then `lane_sender.py`.
May import, beside top modules: `client`, `client.admin`, `client.delays`, `client.multicast`, `core`, `core.lanes`.
"""
