"""Topics and subscriptions: made, changed, repartitioned and deleted, over the ports.

Begin with `topics.py` and `subscriptions.py`.
"""
