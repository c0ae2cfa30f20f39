"""The reader of a partition: which errors it reports, and that no error takes records with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import KafkaError

from kafka_pubsub.errors import PermissionDenied
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.tail import KafkaTail
from kafka_pubsub.model import TopicPartition


class FakeRecord:
    """A record, or an error in its place."""

    def __init__(self, error: int | None = None) -> None:
        self._error = None if error is None else KafkaError(error)

    def error(self) -> KafkaError | None:
        return self._error


class FakeConsumer:
    """Has these records; each read takes the first record alone, as librdkafka's do, and then the others."""

    def __init__(self, *reads: Sequence[FakeRecord]) -> None:
        self._reads = [list(each) for each in reads]

    def assign(self, partitions: object) -> None:
        pass

    def consume(self, most: int, timeout: float) -> list[FakeRecord]:
        if timeout > 0:
            self._now = self._reads.pop(0) if self._reads else []
        found, self._now = self._now[:most], self._now[most:]
        return found


class FakeFactory:
    """Gives the consumer out."""

    address = "broker:9092"

    def __init__(self, consumer: FakeConsumer) -> None:
        self._consumer = consumer

    def check(self) -> None:
        pass

    def consumer(self, *settings: object) -> FakeConsumer:
        return self._consumer


def tail_of(*reads: Sequence[FakeRecord]) -> KafkaTail:
    factory = cast("ClientFactory", FakeFactory(FakeConsumer(*reads)))
    return KafkaTail(factory, TopicPartition("receipts", 0), 0)


def test_a_right_on_the_group_that_is_never_joined_is_not_asked_for() -> None:
    record, refused = FakeRecord(), FakeRecord(KafkaError.GROUP_AUTHORIZATION_FAILED)
    tail = tail_of([refused, record], [refused])
    assert [*map(id, tail.read(10, 1))] == [id(record)]
    assert tail.read(10, 1) == []


def test_an_error_takes_no_records_with_it_and_is_raised_afterwards_once() -> None:
    first, second = FakeRecord(), FakeRecord()
    tail = tail_of([first, FakeRecord(KafkaError.TOPIC_AUTHORIZATION_FAILED), second])
    assert [*map(id, tail.read(10, 1))] == [id(first), id(second)]
    with pytest.raises(PermissionDenied, match="topic 'receipts'"):
        tail.read(10, 1)
    assert tail.read(10, 1) == []


def test_an_error_that_records_followed_is_over() -> None:
    first, second = FakeRecord(), FakeRecord()
    tail = tail_of([first, FakeRecord(KafkaError.TOPIC_AUTHORIZATION_FAILED)], [second])
    assert [*map(id, tail.read(10, 1))] == [id(first)]
    assert [*map(id, tail.read(10, 1))] == [id(second)]
    assert tail.read(10, 1) == []
