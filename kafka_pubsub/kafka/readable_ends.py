"""Asks for the ends of many logs, as a reader of committed records sees them; no leader holds up another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_pubsub.model import TopicPartition

__all__ = ["find_readable_ends"]

#: Seconds for looking again which broker leads.
_LOOK = 0.5


def find_readable_ends(
    client: AdminClient, partitions: Sequence[TopicPartition], timeout: float
) -> Mapping[TopicPartition, int]:
    """Returns the end of each log, by one request to each leader; leaves out logs whose leader doesn't answer."""
    wanted = {KafkaPartition(*each): OffsetSpec.latest() for each in partitions}
    found: dict[TopicPartition, int] = {}
    try:
        futures = client.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout
        )
    except KafkaException:
        return found
    away: set[str] = set()
    for each, future in futures.items():
        try:
            offset = future.result(timeout + _LOOK).offset
        except (KafkaException, FutureTimeout):
            offset = -1
        if offset < 0:  # without an error while a leader is away
            away.add(each.topic)
        else:
            found[TopicPartition(each.topic, each.partition)] = offset
    for topic in away:  # else librdkafka goes on asking the leader that it remembers
        try:
            client.list_topics(topic, timeout=_LOOK)
        except KafkaException:
            break
    return found
