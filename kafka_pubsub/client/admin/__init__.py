"""Makes, changes, repartitions and deletes topics and subscriptions, over the ports.

Begin with `topics.py` and `subscriptions.py`.
"""
