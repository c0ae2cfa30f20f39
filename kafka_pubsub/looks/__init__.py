"""Reads messages without a group: what a subscription hasn't finished, and the newest of a topic. It changes nothing.

Begin with `peek.py` and `tail.py`.
"""
