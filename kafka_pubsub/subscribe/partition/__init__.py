"""The state machine of one partition: events in, effects out. It has no clock, thread, socket, logging or randomness.

Begin with `partition.py`, the only entry; then `events.py` and `effects.py`. `key_queues.py` and `leases.py` deliver,
`offsets.py` and `commits.py` know what is finished, `retry_partition.py` decides what moves to the retry topic and what
comes back.
"""
