"""What runs beside clients: consumer groups that read records, decide, and write others in Kafka transactions.

Begin with `lifecycle.py`, which you start and stop; `engine.py` is the loop, `delay_router.py` the router of delays.
May import, beside top modules: `client`, `client.delays`, `core`, `core.delays`, `schema`.
"""
