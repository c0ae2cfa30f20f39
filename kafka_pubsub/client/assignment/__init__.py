"""Partitions that come and go: where each begins, and which logs are refused before delivery.

Begin with `listener.py`, then `paired_partitions.py`.
May import, beside top modules: `client`, `client.admin`, `client.retry`, `client.subscribe`, `core`, `core.commit`,
`core.lanes`, `core.retry`.
"""
