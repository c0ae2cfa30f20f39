"""Which Kafka a job talks to, as Spark's source, its sink and the Java admin client want to hear it.

Rule: what the promises rest on can't be changed by a user's settings, as in the client; the error names the
setting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

__all__ = ["Connection", "connection_of"]

_FIXED = {"isolation.level": "read_committed", "acks": "all", "enable.idempotence": "true"}
#: By these a key would lie elsewhere than where every other client puts it.
_PARTITIONER = ("partitioner.class", "partitioner.ignore.keys")
_SPARKS_OWN = ("bootstrap.servers", "group.id", "key.deserializer", "value.deserializer", "auto.offset.reset")


@dataclass(frozen=True)
class Connection:
    """An address and further settings of the Java client, without Spark's `kafka.` in front."""

    bootstrap: str
    config: Mapping[str, str] = field(default_factory=dict)

    def client_options(self) -> dict[str, str]:
        """As a Java client takes them."""
        return {**self.config, "bootstrap.servers": self.bootstrap}

    def spark_options(self) -> dict[str, str]:
        """As Spark's source and sink take them."""
        return {f"kafka.{name}": value for name, value in self.client_options().items()}


def connection_of(bootstrap: str | None = None, config: Mapping[str, str] | None = None) -> Connection:
    """The address that was given, else that of KAFKA_PUBSUB_BOOTSTRAP."""
    address = bootstrap or os.environ.get("KAFKA_PUBSUB_BOOTSTRAP")
    if not address:
        raise FailedPrecondition(
            "no Kafka to talk to: pass bootstrap='HOST:PORT' or set KAFKA_PUBSUB_BOOTSTRAP"
        )
    # Spark compares names without regard to case, and all of Kafka's are in small letters.
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
