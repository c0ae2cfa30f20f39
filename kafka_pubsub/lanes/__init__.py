"""Lanes: the pairs of priority and class of a topic, each with a Kafka topic of its own, and which goes next.

Begin with `merge.py` and `choices.py`; for publishing with `home_publisher.py`, then `lane_sender.py`.
"""
