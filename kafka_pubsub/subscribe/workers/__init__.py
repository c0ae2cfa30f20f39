"""What runs callbacks: threads, executors, batches, coroutines, or the thread that reads.

Begin with `lease_runner.py`, then `thread_workers.py`.
"""
