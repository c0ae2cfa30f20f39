"""Partitions that come and go: where each begins, and which logs are refused before delivery.

Begin with `listener.py`, then `paired_partitions.py`.
"""
