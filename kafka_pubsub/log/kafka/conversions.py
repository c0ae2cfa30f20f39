"""Converts partitions, offsets and commits between this package's types and librdkafka's."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import OFFSET_INVALID, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.model import Committed, ReadFrom, TopicPartition

__all__ = ["committed_of", "kafka_partition", "name_of", "plain", "say_nothing", "where_of"]


def kafka_partition(partition: TopicPartition, to: ReadFrom | Committed) -> KafkaPartition:
    """Returns librdkafka's partition with an offset, and with the metadata and epoch of a commit."""
    if isinstance(to, Committed):
        stored = to
    else:
        stored = Committed(to, "") if isinstance(to, int) else Committed(to.offset, "", to.epoch)
    offset = OFFSET_INVALID if stored.offset is None else stored.offset
    if stored.epoch is None:
        return KafkaPartition(*partition, offset, stored.metadata)
    return KafkaPartition(*partition, offset, stored.metadata, stored.epoch)


def committed_of(partition: KafkaPartition) -> Committed:
    """Returns the commit of a partition that librdkafka has read."""
    offset = None if partition.offset == OFFSET_INVALID else partition.offset
    return Committed(offset, partition.metadata or "", partition.leader_epoch)


def say_nothing(records: Sequence[Message], ends: dict[TopicPartition, int | None]) -> bool:
    """Returns whether there are no records, or only ends of logs, which go to `ends`: no caller waits for these."""
    for record in records:
        error, where = record.error(), where_of(record)
        if error is None or error.code() != KafkaError._PARTITION_EOF:
            return False
        if where is not None:
            ends[where] = record.offset()
    return True


def plain(partitions: Sequence[KafkaPartition]) -> list[TopicPartition]:
    """Returns partitions without offsets, in this package's type."""
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def where_of(record: Message) -> TopicPartition | None:
    """Returns the record's partition; None: it is an error that concerns no partition."""
    topic, partition = record.topic(), record.partition()
    return None if topic is None or partition is None or partition < 0 else TopicPartition(topic, partition)


def name_of(partition: TopicPartition) -> str:
    """Returns the partition as a text for people."""
    return f"{partition.topic}[{partition.partition}]"
