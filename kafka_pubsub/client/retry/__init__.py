"""The retry topic of one stream: moves to it, reads from it, and the checkpoints in it.

Begin with `retry_io.py`, then `transaction_thread.py`.
May import, beside top modules: `client`, `client.assignment`, `core`, `core.commit`, `core.lanes`, `schema`.
"""
