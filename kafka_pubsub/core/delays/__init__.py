"""Delayed messages: the tiers, and the router of one partition. `router.py` is the entry."""
