"""The embedded Kafka: a real Apache Kafka on this machine, which this package starts and stops.

>>> from kafka_pubsub.local import LocalKafka
>>> with LocalKafka() as kafka:
...     print(kafka.bootstrap)

`LocalKafka` lives as long as a `with` block; `up`, `down` and `status` manage a broker that outlives the command;
`find_running` gives its address. The pytest fixture `local_kafka` is in `pytest_plugin`, which pytest imports wherever
this package is installed; therefore a name of this module is loaded at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_pubsub.local.broker import LocalKafka
    from kafka_pubsub.local.commands import DEFAULT_PORT, Status, down, find_running, status, up
    from kafka_pubsub.local.errors import LocalKafkaError, PartsMissing, PortInUse

__all__ = [
    "DEFAULT_PORT",
    "LocalKafka",
    "LocalKafkaError",
    "PartsMissing",
    "PortInUse",
    "Status",
    "down",
    "find_running",
    "status",
    "up",
]

_HOMES = {
    "LocalKafka": "broker",
    "LocalKafkaError": "errors",
    "PartsMissing": "errors",
    "PortInUse": "errors",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'commands')}"), name)
    globals()[name] = value
    return value
