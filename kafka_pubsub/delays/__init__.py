"""Delayed messages: publishing them, the topics in which they wait, and the router that delivers them.

Begin with `publisher.py` and `service.py`. `ingest.py`, `layout.py`, `progress.py`, `router.py`, `ticks.py`, `tier.py`
and `values.py` decide, without clock, thread or log.
"""
