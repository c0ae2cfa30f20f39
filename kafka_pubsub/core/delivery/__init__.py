"""Which records may be handed out, to one holder a key, and what a holder's report means.

Begin with `key_queues.py`, then `leases.py`.
"""
