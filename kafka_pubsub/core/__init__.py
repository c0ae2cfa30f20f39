"""The pure core: events in, effects out. It has no clock, thread, socket, logging or randomness.

Begin with `partition.py`.
May import, beside top modules: `core.commit`, `core.delivery`, `core.retry`.
"""
