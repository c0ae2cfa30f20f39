"""Decides what is finished and what may be committed: positions, metadata, checkpoints.

Begin with `offsets.py`, then `commits.py`.
May import, beside top modules: `core`, `core.delivery`, `core.lanes`, `core.retry`.
"""
