"""Receiving from one subscription: its handle, its streams, and the thread that decides.

Begin with `subscriber.py`, then `runner.py` and `coordinator.py`.
May import, beside top modules: `client`, `client.admin`, `client.assignment`, `client.dead_letters`,
`client.history`, `client.looks`, `client.retry`, `client.workers`, `core`, `core.commit`, `core.delivery`,
`core.lanes`, `core.retry`.
"""
