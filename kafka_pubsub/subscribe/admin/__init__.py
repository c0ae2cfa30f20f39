"""Creates, changes and deletes subscriptions, and the lock that commands on their dead letters take.

Begin with `subscriptions.py`.
"""
