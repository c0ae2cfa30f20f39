"""Publishing to causal topics: a message's stage, its receipt, its future.

Begin with `publisher.py`; `status.py` looks at what waits, `dead_letters.py` at what was refused. The sequencer that
orders is in `services/`.
May import, beside top modules: `client`, `client.admin`, `client.dead_letters`, `client.publish`, `core.multicast`,
`core.retry`, `schema`.
"""
