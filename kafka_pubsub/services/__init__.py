"""What runs beside clients: consumer groups that read records, decide, and write others in Kafka transactions.

Begin with `lifecycle.py`, which you start and stop; `engine.py` is the loop, `delay_router.py` the router of delays,
`sequencer_role.py` the sequencer of causal topics.
May import, beside top modules: `client`, `client.admin`, `client.dead_letters`, `client.delays`, `core`,
`core.delays`, `core.multicast`, `schema`.
"""
