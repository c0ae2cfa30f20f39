"""Makes, changes, repartitions and deletes topics and subscriptions, over the ports.

Begin with `topics.py` and `subscriptions.py`.
May import, beside top modules: `client.assignment`, `client.dead_letters`, `client.looks`, `client.publish`,
`client.retry`, `core`, `core.commit`, `core.lanes`, `core.multicast`, `core.retry`, `schema`.
"""
