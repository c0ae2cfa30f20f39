"""Delayed messages: the tiers, and the router of one partition.

Begin with `router.py`.
May import, beside top modules: nothing.
"""
