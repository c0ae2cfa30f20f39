"""What runs beside clients: consumer groups that read records, decide, and write others in Kafka transactions.

`lifecycle.py` is what a user starts and stops, `engine.py` the loop of one, `delay_router.py` the router of delays.
"""
