"""The publisher and the subscriber; they use a log only through `ports.py`.

Begin with `cluster.py`.
May import, beside top modules: `client.admin`, `client.dead_letters`, `client.delays`, `client.history`,
`client.multicast`, `client.publish`, `client.subscribe`, `client.topology`, `core`, `core.lanes`.
"""
