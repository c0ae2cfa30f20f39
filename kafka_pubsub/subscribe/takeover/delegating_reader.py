"""Readers and listeners that pass all calls on; subclasses override a few of them.

Rules
1. A call that isn't overridden is passed on unchanged.
2. A subclass may exchange the reader; the next call goes to the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import LogReader, RebalanceListener
from kafka_pubsub.model import Answered, Committed, LogEnd, Membership, ReadFrom, StoredRecord, TopicPartition

__all__ = ["DelegatingListener", "DelegatingReader"]


class DelegatingReader:
    """A `LogReader` around another one."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._reader.subscribe(topics, listener)

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        return self._reader.read(max_records, timeout)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        return self._reader.committed(partitions, timeout)

    def committed_unstable(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        return self._reader.committed_unstable(partitions)

    def membership(self) -> Membership | None:
        return self._reader.membership()

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        return self._reader.positions(partitions)

    def at_end(self, partitions: Sequence[TopicPartition]) -> Set[TopicPartition]:
        return self._reader.at_end(partitions)

    def readable_ends(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, LogEnd]:
        return self._reader.readable_ends(partitions, timeout)

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._reader.high_watermarks(partitions)

    def commit(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        self._reader.commit(positions, answered)

    def unanswered(self) -> bool:
        return self._reader.unanswered()

    def settle(self) -> bool:
        return self._reader.settle()

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        return self._reader.log_range(partition)

    def reachable_ranges(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        return self._reader.reachable_ranges(partitions, timeout)

    def seek(self, partition: TopicPartition, to: ReadFrom) -> None:
        self._reader.seek(partition, to)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.resume(partitions)

    def close(self) -> None:
        self._reader.close()


class DelegatingListener:
    """A `RebalanceListener` around another one."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        return self._listener.assigned(partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.revoked(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.lost(partitions)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self._listener.failed(partition, error, fatal)
