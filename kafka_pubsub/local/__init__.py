"""The embedded default: a real Apache Kafka on this machine, started and stopped by us.

>>> from kafka_pubsub.local import LocalKafka
>>> with LocalKafka() as kafka:
...     print(kafka.bootstrap)
"""

from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.local.errors import LocalKafkaError, PartsMissing

__all__ = ["LocalKafka", "LocalKafkaError", "PartsMissing"]
