"""The state machine of a partition: events in, effects out. It has no clock, thread, socket, logging or randomness.

Begin with `partition.py`, the only entry; then `events.py` and `effects.py`. `key_queues.py` and `leases.py` deliver,
`offsets.py` and `commits.py` know the finished messages, `retry_partition.py` decides which messages move to the retry
topic and what comes back.
"""
