"""Partitions that come and go: where each begins, and what is refused before anything of it is delivered.

Begin with `listener.py`, then `paired_partitions.py`.
"""
