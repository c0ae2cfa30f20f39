"""What runs beside clients: consumer groups that read records, decide, and write others in Kafka transactions.

Begin with `lifecycle.py`, which you start and stop; `engine.py` is the loop. The services are in `delays/` and
`multicast/`.
"""
