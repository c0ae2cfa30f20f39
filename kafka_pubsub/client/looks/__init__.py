"""Reads messages without a group: what a subscription hasn't finished, and the newest of a topic. It changes nothing.

Begin with `peek.py` and `tail.py`.
May import, beside top modules: `client.assignment`, `client.dead_letters`, `client.retry`, `core.lanes`, `core.retry`.
"""
