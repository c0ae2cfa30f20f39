"""The `LogTail` port for the in-memory Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.log.ports import LogTail
from kafka_pubsub.model import TopicPartition

__all__ = ["MemoryTail"]


class MemoryTail(LogTail):
    """A `LogTail` in memory. It waits where time passes by itself."""

    def __init__(self, cluster: MemoryCluster, partition: TopicPartition, offset: int) -> None:
        self._cluster, self._partition, self._next = cluster, partition, offset
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def read(self, max_records: int, timeout: float) -> Sequence[MemoryRecord]:
        """Returns the next records; see the port."""
        deadline = self._cluster.real.now() + timeout
        while True:
            with self._cluster.changed:
                if self._closed:
                    raise FailedPrecondition(f"the reader of topic {self._partition.topic!r} is closed")
                found = self._found(max_records)
                left = deadline - self._cluster.real.now()
                if found or left <= 0 or not self._cluster.blocking:
                    return found
                self._cluster.changed.wait(left)

    def _found(self, most: int) -> list[MemoryRecord]:
        log = self._cluster.log(self._partition)
        found: list[MemoryRecord] = []
        while self._next < log.stable_end and len(found) < most:
            record = log.at(self._next)
            self._next += 1
            if record is not None:
                found.append(record)
        return found

    def close(self) -> None:
        """Ends its reads."""
        with self._cluster.changed:
            self._closed = True
            self._cluster.changed.notify_all()
