"""Why a transaction failed, where librdkafka tells only the consequence."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.log.kafka.errors import error_of

__all__ = ["DROPPED", "cause_of", "silence"]

#: The errors of a record that was never sent, because its transaction had failed.
DROPPED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def cause_of(producer: Producer, error: KafkaError) -> KafkaException:
    """Returns the exception of a record's error; that of the transaction, if the record was dropped because of it.

    For use inside a transaction only: where it has failed, librdkafka refuses to begin another one, with the reason.
    """
    if error.code() in DROPPED:
        try:
            producer.begin_transaction()
        except KafkaException as refusal:
            if error_of(refusal).code() != KafkaError._STATE:
                return refusal
    return KafkaException(error)


def silence(doing: str, topics: Collection[str]) -> DeadlineExceeded:
    """Returns the error of a transaction in which records of these topics got no answer in time."""
    names = ", ".join(map(repr, sorted(topics)))
    return DeadlineExceeded(
        f"{doing}: no answer in time for records of topic {names}: a leader is away, or has too few replicas in sync"
    )
