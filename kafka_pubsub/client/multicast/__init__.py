"""Publishing to causal topics: a message's stage, its receipt, its future.

Begin with `publisher.py`. The sequencer that orders is in `services/`.
May import, beside top modules: `client.admin`, `client.publish`, `core.multicast`, `schema`.
"""
