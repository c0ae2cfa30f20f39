"""Causal topics: publishing to them, and the sequencer that orders their messages.

Begin with `publisher.py` and `service.py`. `layout.py`, `progress.py`, `release_queue.py`, `sequencer.py` and
`values.py` decide, without clock, thread or log. `status.py` looks at what waits, `dead_letters.py` at what was
refused.
"""
