"""What runs callbacks: threads, executors, batches, coroutines, or the thread that reads.

Begin with `lease_runner.py`, then `thread_workers.py`.
May import, beside top modules: `client`, `client.publish`, `client.subscribe`, `core`, `core.commit`, `core.delivery`,
`core.retry`.
"""
