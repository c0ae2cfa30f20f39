"""Publishing to one topic: checks, order per key, flow control, and a future for each message.

Begin with `publisher.py`.
"""
