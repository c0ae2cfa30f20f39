"""Lanes: the pairs of priority and class of a topic, each with a Kafka topic of its own, and which goes next.

Begin with `merge.py`.
May import, beside top modules: `core`, `core.delivery`.
"""
