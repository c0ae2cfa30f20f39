"""Decides which records may be handed out, to one lease runner for each key, and what a lease runner's report means.

Begin with `key_queues.py`, then `leases.py`.
May import, beside top modules: `core`, `core.commit`, `core.retry`.
"""
