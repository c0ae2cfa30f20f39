"""Which records may be handed out, to one lease runner a key, and what a lease runner's report means.

Begin with `key_queues.py`, then `leases.py`.
"""
