"""The retry topic of one stream: what moves there, what is read back, and the checkpoints in it.

Begin with `retry_io.py`, then `transaction_thread.py`.
"""
