"""Reads what is stored in one partition from an offset on, by a consumer that belongs to no group.

An error never takes records with it: librdkafka goes on behind them, so they would be lost. It is raised at once where
nothing was read with it, else by the next read, unless that gives records: then the error is over. Reading goes on
afterwards: a right that is granted later is enough.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.kafka.bounded_calls import explain
from kafka_pubsub.log.kafka.client_factory import ClientFactory, Trouble
from kafka_pubsub.log.kafka.configuration import ConfigValue
from kafka_pubsub.log.kafka.errors import TRANSIENT
from kafka_pubsub.log.kafka.rights import Doing, on_topics
from kafka_pubsub.log.ports import LogTail
from kafka_pubsub.model import StoredRecord, TopicPartition

__all__ = ["KafkaTail"]

_DEFAULTS: Mapping[str, ConfigValue] = {
    # Kilobytes of records that are read ahead.
    "queued.max.messages.kbytes": 1_024,
}

_RULES: Mapping[str, ConfigValue] = {
    # librdkafka needs a group; it is never joined, because the partition is assigned by hand.
    "group.id": "_kafka_pubsub.tail",
    "client.id": "kafka_pubsub-tail",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
}

#: Errors that are passed over: librdkafka asks for the group's coordinator too, whose refusal means nothing here.
_PASSING = TRANSIENT | {KafkaError.GROUP_AUTHORIZATION_FAILED}

#: Seconds between two checks for Ctrl-C while waiting.
_SLICE = 0.5


class KafkaTail(LogTail):
    """A `LogTail` over librdkafka."""

    def __init__(self, handles: ClientFactory, partition: TopicPartition, offset: int) -> None:
        self._handles, self._place, self._offset = handles, partition, offset
        self._trouble = Trouble()
        # Held over a read, so that closing waits for it.
        self._lock = threading.Lock()
        self._closed = False
        # None until the first read.
        self._consumer: Consumer | None = None
        # The error that came beside the last records; None: none did.
        self._failed: KafkaError | None = None

    @property
    def closed(self) -> bool:
        """Whether it was closed, by its user or with its backend."""
        return self._closed

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        """Returns the next records; see the port."""
        with self._lock:
            consumer = self._ready()
            found = consumer.consume(1, min(timeout, _SLICE))
            if found:
                found += consumer.consume(max_records - 1, 0) if max_records > 1 else []
        errors = [error for record in found if (error := record.error()) and error.code() not in _PASSING]
        records = [record for record in found if record.error() is None]
        if errors or records:
            self._failed = errors[-1] if errors else None
        if not records:
            self._raise_failed()
        return cast("list[StoredRecord]", records)  # its header values are typed wider than they are

    def _raise_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            topic = self._place.topic
            doing = Doing(f"read topic {topic!r}", *on_topics("READ", topic))
            raise explain(KafkaException(failed), doing, self._handles.address, self._trouble)

    def close(self) -> None:
        """Closes the consumer."""
        with self._lock:
            self._closed = True
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                self._handles.close_consumer(consumer)

    def _ready(self) -> Consumer:
        self._handles.check()
        if self._closed:
            raise FailedPrecondition(f"the reader of topic {self._place.topic!r} is closed")
        if self._consumer is None:
            self._consumer = self._handles.consumer(_DEFAULTS, _RULES, self._trouble.note)
            self._consumer.assign([KafkaPartition(*self._place, self._offset)])
        return self._consumer
