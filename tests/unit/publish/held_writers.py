"""A Kafka in memory whose answers to publishers come when a test lets them."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import Name, read_lane_headers
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.log.memory.writer import MemoryWriter
from kafka_pubsub.log.ports import DeliveryReport
from kafka_pubsub.model import Header, StoredRecord, TopicPartition

__all__ = ["HeldBackend", "after_of", "number_of", "other_of"]


def number_of(record: StoredRecord) -> int:
    """The publisher's number of a record; 0: none."""
    said = read_lane_headers(record.headers())[0]
    return 0 if said is None else said.number


def other_of(record: StoredRecord) -> Name | None:
    """The last message of the other class that a record names."""
    said = read_lane_headers(record.headers())[0]
    return None if said is None else said.other


def after_of(record: StoredRecord) -> dict[Lane, int]:
    """The offsets of the messages after which a record comes, by lane."""
    return {lane: name.offset for lane, name in read_lane_headers(record.headers())[1].items()}


class HeldBackend(MemoryBackend):
    """`held` are the topics whose records aren't reported. `events`: what was stored, and reported, in that order."""

    def __init__(self, cluster: MemoryCluster | None = None, faults: FaultPlan | None = None) -> None:
        super().__init__(cluster=cluster, faults=faults)
        self.held: set[str] = set()
        #: Messages of held topics that are answered none the less.
        self.answers = 0
        self.events: list[tuple[str, StoredRecord]] = []

    def writer(self, batching: Batching, max_batch_bytes: int, durable: bool = True) -> MemoryWriter:
        return _HeldWriter(self, self._faults)

    def hold(self, *topics: str) -> None:
        """Answers no message of these topics from now on."""
        self.held |= set(topics)

    def release(self, *topics: str) -> None:
        """Answers the messages of these topics, or of all."""
        with self.cluster.change():
            self.held -= set(topics) if topics else set(self.held)

    def report_one(self) -> None:
        """Answers the first message that waits for its answer, of whatever topic."""
        with self.cluster.change():
            self.answers += 1

    def stored(self, topic: str) -> list[StoredRecord]:
        """What is stored in a topic, by partition."""
        count = self.admin.topic(topic).partitions
        logs = [self.cluster.log(TopicPartition(topic, number)) for number in range(count)]
        return [record for log in logs for record in log.read(0, 100_000)]

    def values(self, topic: str) -> list[bytes | None]:
        """The bodies that are stored in a topic."""
        return [record.value() for record in self.stored(topic)]


class _HeldWriter(MemoryWriter):
    def __init__(self, backend: HeldBackend, faults: FaultPlan) -> None:
        super().__init__(backend.cluster, faults, 100_000)
        self._backend = backend

    def _take_due(self) -> tuple[float, DeliveryReport, PubSubError | None, MemoryRecord] | None:
        with self._cluster.changed:
            for entry in self._queue:
                held = entry[3].topic() in self._backend.held
                if not held or self._backend.answers:
                    self._backend.answers -= held
                    self._queue.remove(entry)
                    self._backend.events.append(("reported", entry[3]))
                    return entry
            return None

    def _store(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        outcome: RequestOutcome,
        partition: int,
    ) -> tuple[MemoryRecord, PubSubError | None]:
        record, error = super()._store(topic, value, key, headers, outcome, partition)
        self._backend.events.append(("stored", record))
        return record, error
