"""Where records and partitions are, in our words and in librdkafka's."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.model import TopicPartition

__all__ = ["name_of", "plain", "say_nothing", "where_of"]


def say_nothing(records: Sequence[Message], ends: dict[TopicPartition, int | None]) -> bool:
    """Whether there are none, or only ends of logs, which are noted in `ends`: no caller waits for those."""
    for record in records:
        error, where = record.error(), where_of(record)
        if error is None or error.code() != KafkaError._PARTITION_EOF:
            return False
        if where is not None:
            ends[where] = record.offset()
    return True


def plain(partitions: Sequence[KafkaPartition]) -> list[TopicPartition]:
    """Partitions in our words."""
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def where_of(record: Message) -> TopicPartition | None:
    """The record's partition; None: it is an error that concerns none."""
    topic, partition = record.topic(), record.partition()
    return None if topic is None or partition is None or partition < 0 else TopicPartition(topic, partition)


def name_of(partition: TopicPartition) -> str:
    """For a person."""
    return f"{partition.topic}[{partition.partition}]"
