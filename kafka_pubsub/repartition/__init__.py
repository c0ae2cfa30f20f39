"""Gives a topic more partitions without losing the order of its keys.

Begin with `repartition.py`.
"""
