"""The retry topic of one subscription: moves to it, reads from it, and the checkpoints in it.

Begin with `retry_io.py`, then `transaction_thread.py`.
"""
