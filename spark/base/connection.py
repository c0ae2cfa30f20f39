"""Holds the address and settings of the Kafka that a job uses, for Spark's source and sink and the Java admin client.

Rule: as in the Python client, a user can't change the settings that this package relies on; the error names the
setting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

__all__ = ["Connection", "connection_of"]

_FIXED = {"isolation.level": "read_committed", "acks": "all", "enable.idempotence": "true"}
#: These settings would put a key into another partition than other clients do.
_PARTITIONER = ("partitioner.class", "partitioner.ignore.keys")
_SPARKS_OWN = ("bootstrap.servers", "group.id", "key.deserializer", "value.deserializer", "auto.offset.reset")


@dataclass(frozen=True)
class Connection:
    """An address and further settings of the Java client; their names don't begin with Spark's `kafka.`."""

    bootstrap: str
    config: Mapping[str, str] = field(default_factory=dict)

    def client_options(self) -> dict[str, str]:
        """Returns the settings for a Java client."""
        return {**self.config, "bootstrap.servers": self.bootstrap}

    def spark_options(self) -> dict[str, str]:
        """Returns the settings as options of Spark's source and sink."""
        return {f"kafka.{name}": value for name, value in self.client_options().items()}


def connection_of(bootstrap: str | None = None, config: Mapping[str, str] | None = None) -> Connection:
    """Makes a connection to `bootstrap` (default: KAFKA_PUBSUB_BOOTSTRAP) with the settings `config` (default: none).

    Raises `InvalidArgument` for a setting that can't be changed.
    """
    address = bootstrap or os.environ.get("KAFKA_PUBSUB_BOOTSTRAP")
    if not address:
        raise FailedPrecondition(
            "no Kafka to talk to: pass bootstrap='HOST:PORT' or set KAFKA_PUBSUB_BOOTSTRAP"
        )
    # Spark ignores the case of names, and Kafka's names are all in small letters.
    settings = {name.lower().removeprefix("kafka."): value for name, value in (config or {}).items()}
    for name, value in settings.items():
        if name in _FIXED and value != _FIXED[name]:
            raise InvalidArgument(f"config {name}={value}: it must stay {_FIXED[name]}; leave it out")
        if name in _PARTITIONER:
            raise InvalidArgument(
                f"config {name}: a key must lie where every client of the topic puts it; leave it out"
            )
        if name in _SPARKS_OWN:
            raise InvalidArgument(f"config {name}: it is set by this package or by Spark; leave it out")
    return Connection(address, settings)
