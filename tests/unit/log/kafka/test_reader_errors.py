"""Errors of a reader: which are reported, of which partition, and which end the reader."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import KafkaError, Message

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.kafka.reader_errors import ReaderErrors
from kafka_pubsub.model import TopicPartition

HERE = TopicPartition("orders", 0)


class _Record:
    """A record of librdkafka that is an error or the end of a log."""

    def __init__(self, code: int, partition: int = 0) -> None:
        self._code, self._partition = code, partition

    def error(self) -> KafkaError:
        return KafkaError(self._code)

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return 7


@pytest.fixture
def reported() -> list[tuple[TopicPartition | None, bool]]:
    return []


@pytest.fixture
def found(reported: list[tuple[TopicPartition | None, bool]]) -> ReaderErrors:
    def report(partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        reported.append((partition, fatal))

    return ReaderErrors("billing", "kafka:9092", report)


def read(found: ReaderErrors, *records: _Record) -> dict[TopicPartition, int | None]:
    ends: dict[TopicPartition, int | None] = {}
    found.note_records(cast("list[Message]", list(records)), {HERE}, ends)
    return ends


def test_one_broker_that_closes_its_connection_is_no_news_until_none_is_left(
    found: ReaderErrors, reported: list[tuple[TopicPartition | None, bool]]
) -> None:
    found.note(KafkaError(KafkaError._TRANSPORT))
    assert reported == []
    found.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert (reported, found.down) == ([(None, False)], True)


def test_the_same_error_is_reported_once_a_second(
    found: ReaderErrors, reported: list[tuple[TopicPartition | None, bool]]
) -> None:
    for _ in range(20):
        found.note(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert reported == [(None, False)]


def test_the_end_of_a_log_is_no_error(
    found: ReaderErrors, reported: list[tuple[TopicPartition | None, bool]]
) -> None:
    assert read(found, _Record(KafkaError._PARTITION_EOF)) == {HERE: 7}
    assert reported == []


def test_an_error_of_a_partition_that_is_not_assigned_is_one_of_the_topic(
    found: ReaderErrors, reported: list[tuple[TopicPartition | None, bool]]
) -> None:
    read(found, _Record(KafkaError.UNKNOWN_TOPIC_OR_PART, partition=5))
    assert [partition for partition, _ in reported] == [None]
