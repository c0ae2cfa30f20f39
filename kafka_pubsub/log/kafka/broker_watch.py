"""Whether a client of librdkafka's has lost its brokers for good (decisions 047 and 082)."""

from __future__ import annotations

from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub.log.kafka.errors import error_of

__all__ = ["LOST_S", "finds_brokers", "has_lost_brokers"]

#: Seconds without any answer after which a client that has complained is asked.
LOST_S: Final = 10.0
#: Seconds for a request for metadata; a broker that is there answers in milliseconds.
_METADATA_S: Final = 2.0


class Asks(Protocol):
    """A producer, a consumer or an admin client."""

    def list_topics(self, topic: str = ..., timeout: float = ...) -> object: ...


def finds_brokers(client: Asks) -> bool:
    """Returns whether a broker answers a client."""
    try:
        client.list_topics(timeout=_METADATA_S)
    except KafkaException:
        return False
    return True


def has_lost_brokers(client: Asks, fresh: Asks) -> bool:
    """Returns whether a client, asked afterwards, finds no broker although a fresh one does."""
    if not finds_brokers(fresh):
        return False  # no broker is there
    try:
        client.list_topics(timeout=_METADATA_S)
    except KafkaException as failure:
        return bool(error_of(failure).code() == KafkaError._TRANSPORT)
    return False
