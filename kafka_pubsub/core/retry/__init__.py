"""Decides what waits in the retry partition, when it goes, and what moves there.

Begin with `retry_partition.py`, then `retry_state.py`.
May import, beside top modules: `core`, `core.commit`, `core.delivery`, `core.lanes`.
"""
