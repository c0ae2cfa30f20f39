"""Which cluster a `PubSub` talks to, if several are named."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pubsub.config import Settings
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

__all__ = ["choose_address"]


def choose_address(bootstrap: object, config: Mapping[str, object], settings: Settings) -> str:
    """Returns the address that was named most explicitly, else that of the embedded broker that runs."""
    if bootstrap is not None and not (isinstance(bootstrap, str) and bootstrap.strip()):
        raise InvalidArgument(f"bootstrap must be an address like 'localhost:9092', not {bootstrap!r}")
    configured = config.get("bootstrap.servers")
    named = bootstrap or (str(configured) if configured else settings.bootstrap)
    if named is None:
        from kafka_pubsub.local import find_running

        named = find_running()
    if named is None:
        raise FailedPrecondition(
            "no Kafka to talk to: start the embedded one with `kafka-pubsub up`, or name yours with "
            "PubSub('HOST:PORT') or KAFKA_PUBSUB_BOOTSTRAP; PubSub.in_memory() needs none"
        )
    return named
