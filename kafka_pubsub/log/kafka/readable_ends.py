"""Asks for the ends of many logs, as a reader of committed records sees them; no leader holds up another one.

Rules
1. A consumer that joins no group asks for all of them with one call, which costs a tenth of what an admin client takes.
2. That call answers all or nothing. Where a leader doesn't answer soon, the admin client asks for each log by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout

from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.configuration import ConfigValue
from kafka_pubsub.model import LogEnd, TopicPartition

__all__ = ["ReadableEnds"]

#: Seconds for looking again which broker leads.
_LOOK = 0.5
#: Seconds after which the call for all logs is given up.
_SOON = 0.3

_RULES: Mapping[str, ConfigValue] = {
    # librdkafka needs a group; it is never joined.
    "group.id": "_kafka_pubsub.readable-ends",
    "client.id": "kafka_pubsub-readable-ends",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}


class ReadableEnds:
    """The ends of logs; the consumer is made for the first call. `connect` lends an admin client until `let_go`."""

    def __init__(
        self,
        handles: ClientFactory,
        connect: Callable[[], AdminClient],
        let_go: Callable[[AdminClient], None],
    ) -> None:
        self._handles, self._connect, self._let_go = handles, connect, let_go
        # Held over a call, so that closing waits for it.
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def find(self, partitions: Sequence[TopicPartition], timeout: float) -> Mapping[TopicPartition, int]:
        """Returns the end of each log; leaves out logs whose leader doesn't answer."""
        found = self._find_together(partitions, min(timeout, _SOON))
        if found is not None:
            return found
        return {place: end.offset for place, end in self.find_one_by_one(partitions, timeout).items()}

    def find_one_by_one(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, LogEnd]:
        """Returns the end of each log, with its leader's epoch, by the admin client; leaves out the same logs."""
        client = self._connect()
        try:
            return _find_one_by_one(client, partitions, timeout)
        finally:
            self._let_go(client)

    def find_ranges(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Returns where each log begins and ends, with open transactions; leaves out the same logs."""
        client, level = self._connect(), IsolationLevel.READ_UNCOMMITTED
        try:
            first = _find_one_by_one(client, partitions, timeout, OffsetSpec.earliest(), level)
            end = _find_one_by_one(client, list(first), timeout, OffsetSpec.latest(), level) if first else {}
        finally:
            self._let_go(client)
        return {place: (first[place].offset, end[place].offset) for place in first if place in end}

    def close(self) -> None:
        """Closes the consumer."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                self._handles.close_consumer(consumer)

    def _find_together(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, int] | None:
        self._handles.check()
        with self._lock:
            if self._consumer is None:
                self._consumer = self._handles.consumer({}, _RULES)
            wanted = [KafkaPartition(*each, OFFSET_END) for each in partitions]
            try:
                found = self._consumer.offsets_for_times(wanted, timeout)
            except KafkaException:
                return None
        if any(each.error is not None or each.offset < 0 for each in found):
            return None
        return {TopicPartition(each.topic, each.partition): each.offset for each in found}


def _find_one_by_one(
    client: AdminClient,
    partitions: Sequence[TopicPartition],
    timeout: float,
    where: OffsetSpec | None = None,
    level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> Mapping[TopicPartition, LogEnd]:
    """Asks for the ends, or for another place `where`."""
    wanted = {KafkaPartition(*each): where or OffsetSpec.latest() for each in partitions}
    found: dict[TopicPartition, LogEnd] = {}
    try:
        futures = client.list_offsets(wanted, isolation_level=level, request_timeout=timeout)
    except KafkaException:
        return found
    away: set[str] = set()
    for each, future in futures.items():
        try:
            end = future.result(timeout + _LOOK)
        except (KafkaException, FutureTimeout):
            end = None
        if end is None or end.offset < 0:  # without an error while a leader is away
            away.add(each.topic)
        else:
            found[TopicPartition(each.topic, each.partition)] = LogEnd(end.offset, end.leader_epoch)
    for topic in away:  # else librdkafka goes on asking the leader that it remembers
        try:
            client.list_topics(topic, timeout=_LOOK)
        except KafkaException:
            break
    return found
