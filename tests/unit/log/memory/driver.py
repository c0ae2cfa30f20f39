"""A member driven step by step under a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, MemoryCluster, VirtualClock
from kafka_pubsub.model import TopicPartition

__all__ = ["SESSION", "Process", "cluster_of"]

#: Seconds.
SESSION = 6.0


def cluster_of(*topics: str, partitions: int = 2) -> tuple[MemoryCluster, VirtualClock]:
    """A cluster with these topics, and its clock."""
    clock = VirtualClock()
    cluster = MemoryCluster(clock, blocking=False)
    for topic in topics:
        MemoryBackend(cluster=cluster).admin.create_topic(topic, partitions, None, {})
    return cluster, clock


class Process:
    """A single process with a single member; `log` is what its listener heard."""

    def __init__(
        self,
        cluster: MemoryCluster,
        name: str,
        *topics: str,
        faults: FaultPlan | None = None,
        starts: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.backend = MemoryBackend(cluster=cluster, faults=faults, session_timeout=SESSION)
        self.reader = self.backend.reader("g", name)
        self.starts = starts or {}
        self.owned: set[TopicPartition] = set()
        self.log: list[str] = []
        self.failures: list[tuple[TopicPartition | None, PubSubError, bool]] = []
        self.on_revoked: Callable[[], None] = lambda: None
        self.reader.subscribe(topics, self)

    def read(self, limit: int = 100) -> list[bytes | None]:
        """A single step."""
        return [record.value() for record in self.reader.read(limit, 0)]

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.log.append(f"assigned {len(partitions)}")
        self.owned = set(partitions)
        return {each: self.starts.get(each, 0) for each in partitions}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.on_revoked()
        self.log.append(f"revoked {len(partitions)}")
        self.owned.clear()

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.log.append(f"lost {len(partitions)}")
        self.owned.clear()

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self.failures.append((partition, error, fatal))
