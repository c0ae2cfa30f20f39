"""Receiving from one subscription: its handle, its streams, and the thread that decides.

Begin with `subscriber.py`, then `runner.py` and `coordinator.py`.
"""
