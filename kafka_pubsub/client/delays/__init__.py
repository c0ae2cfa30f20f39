"""Delayed publishing, and the topics of the delays. The router that delivers is in `services/`.

Begin with `publisher.py`.
May import, beside top modules: `client`, `client.admin`, `client.dead_letters`, `client.publish`, `core`,
`core.delays`, `core.lanes`, `core.retry`, `schema`.
"""
