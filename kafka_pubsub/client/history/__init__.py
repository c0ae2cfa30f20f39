"""Histories of what a stream and a publisher did, for the checker of the tests.

Begin with `protocol.py`, then `recorder.py`.
May import, beside top modules: `client.assignment`, `client.publish`, `client.retry`, `client.subscribe`,
`client.workers`, `core`, `core.commit`, `core.delivery`, `core.lanes`, `core.retry`.
"""
