"""Where records and partitions are, in our words and in librdkafka's."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import OFFSET_INVALID, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.model import Committed, ReadFrom, TopicPartition

__all__ = ["committed_of", "kafka_partition", "name_of", "plain", "say_nothing", "where_of"]


def kafka_partition(partition: TopicPartition, to: ReadFrom | Committed) -> KafkaPartition:
    """A partition with an offset, and what goes with it, in librdkafka's words."""
    if isinstance(to, Committed):
        stored = to
    else:
        stored = Committed(to, "") if isinstance(to, int) else Committed(to.offset, "", to.epoch)
    offset = OFFSET_INVALID if stored.offset is None else stored.offset
    if stored.epoch is None:
        return KafkaPartition(*partition, offset, stored.metadata)
    return KafkaPartition(*partition, offset, stored.metadata, stored.epoch)


def committed_of(partition: KafkaPartition) -> Committed:
    """What is stored of a partition, as librdkafka tells it."""
    offset = None if partition.offset == OFFSET_INVALID else partition.offset
    return Committed(offset, partition.metadata or "", partition.leader_epoch)


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
