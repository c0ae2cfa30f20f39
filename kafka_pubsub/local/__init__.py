"""The embedded default: a real Apache Kafka on this machine, started and stopped by us.

>>> from kafka_pubsub.local import LocalKafka
>>> with LocalKafka() as kafka:
...     print(kafka.bootstrap)

`LocalKafka` lives as long as a `with` block; `up`, `down` and `status` manage one that outlives the command;
`find_running` gives its address. The pytest fixture `local_kafka` is in `pytest_plugin`.
"""

from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.local.commands import DEFAULT_PORT, Status, down, find_running, status, up
from kafka_pubsub.local.errors import LocalKafkaError, PartsMissing

__all__ = [
    "DEFAULT_PORT",
    "LocalKafka",
    "LocalKafkaError",
    "PartsMissing",
    "Status",
    "down",
    "find_running",
    "status",
    "up",
]
