"""What chooses which partition's messages go next. A stream has one chooser; lanes bring their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.log.records import Record
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.lane_windows import LaneWindows
from kafka_pubsub.subscribe.owned_partitions import OwnedPartitions
from kafka_pubsub.subscribe.partition.events import Demand, Event
from kafka_pubsub.subscribe.retry_topic.layout import NO_LANE, Layout
from kafka_pubsub.subscribe.workers.thread_workers import WorkerPool

__all__ = ["Batches", "Chooser", "Handle", "OldestFirst"]

#: What was read, by the number of the partition.
Batches = Mapping[PartitionId, Sequence[Record]]
#: Gives an event to a partition.
Handle = Callable[[PartitionId, Event], None]


class Chooser(Protocol):
    """Chooses among the partitions of a stream, and says how far each is read ahead."""

    @property
    def active(self) -> bool:
        """Whether the topic has lanes, so that a partition's messages may wait for those of others."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether keys set an order between partitions."""
        ...

    @property
    def stuck(self) -> Sequence[PartitionId]:
        """Partitions that hold up a choice though nothing more may come: a reader may have passed markers."""
        ...

    @property
    def choosing(self) -> bool:
        """Whether messages wait that go soon, though nothing more is read."""
        ...

    @property
    def asking(self) -> bool:
        """Whether a request for the ends of logs is unanswered."""
        ...

    @property
    def turned(self) -> bool:
        """Whether partitions are to be read further ahead, or less, than before."""
        ...

    @property
    def windows_in_use(self) -> LaneWindows | None:
        """How far each partition is read ahead; None: all alike."""
        ...

    def watch(self, partitions: OwnedPartitions) -> None:
        """Begins with the partitions of a stream, which owns none yet."""

    def lane(self, number: PartitionId) -> Lane:
        """Returns the lane of a partition; any thread may call it."""
        ...

    def cut(
        self,
        batches: Batches,
        layout: Layout,
        partitions: OwnedPartitions,
        reader: LogReader,
        post: Callable[[Callable[[], None]], None],
    ) -> tuple[Batches, int]:
        """Returns what is kept of the records that were read, and how many these are; the rest is read again.

        `post` hands a call to the runner.
        """
        ...

    def sort(self, batches: Batches) -> Iterable[tuple[PartitionId, Sequence[Record]]]:
        """Returns what was read, in the order in which it is taken."""
        ...

    def waiting(self, number: PartitionId, records: Sequence[Record], now: float) -> Collection[int]:
        """Returns the offsets of those of the new records that wait for messages in other partitions."""
        ...

    def passes(self, number: PartitionId, last: int, now: float) -> bool:
        """Whether a partition's messages up to an offset go before all that waits, so that they needn't wait."""
        ...

    def passed(self, number: PartitionId, count: int, now: float) -> None:
        """So many messages of a partition went as soon as they were read."""

    def deliver(
        self,
        partitions: OwnedPartitions,
        free: int,
        worker_pool: WorkerPool,
        handle: Handle,
        now: float,
        *,
        inline: int = 0,
    ) -> bool:
        """Hands out leases by `handle` while `free` more messages may be started; returns whether there were any.

        `inline`: the caller takes due ones; and of lanes without an order about so many messages.
        """
        ...

    def wakeup_at(self) -> float | None:
        """Returns when time alone may change a choice; None: never."""
        ...

    def close(self) -> None:
        """Asks no more."""

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""


class OldestFirst:
    """The chooser of a topic without lanes: the oldest key of each partition goes first, and partitions take turns."""

    active = ordered = choosing = asking = turned = False
    stuck: Sequence[PartitionId] = ()
    windows_in_use: LaneWindows | None = None

    def __init__(self) -> None:
        self._turn = 0

    def watch(self, partitions: OwnedPartitions) -> None:
        """Does nothing."""

    def lane(self, number: PartitionId) -> Lane:
        """Returns that of a topic without lanes."""
        return NO_LANE

    def cut(
        self,
        batches: Batches,
        layout: Layout,
        partitions: OwnedPartitions,
        reader: LogReader,
        post: Callable[[Callable[[], None]], None],
    ) -> tuple[Batches, int]:
        """Keeps all."""
        return batches, sum(map(len, batches.values()))

    def sort(self, batches: Batches) -> Iterable[tuple[PartitionId, Sequence[Record]]]:
        """Keeps the order."""
        return batches.items()

    def waiting(self, number: PartitionId, records: Sequence[Record], now: float) -> Collection[int]:
        """Returns none."""
        return ()

    def passes(self, number: PartitionId, last: int, now: float) -> bool:
        """Lets all pass."""
        return True

    def passed(self, number: PartitionId, count: int, now: float) -> None:
        """Does nothing."""

    def deliver(
        self,
        partitions: OwnedPartitions,
        free: int,
        worker_pool: WorkerPool,
        handle: Handle,
        now: float,
        *,
        inline: int = 0,
    ) -> bool:
        """Gives each partition the same share; the first of a call is another one each time."""
        wanted = worker_pool.wants(free)
        numbers = partitions.attention.deliverable() if wanted > 0 else []
        handed = False
        for at in range(len(numbers)):
            if wanted <= 0:
                break
            share = -(-wanted // (len(numbers) - at))
            number = numbers[(at + self._turn) % len(numbers)]
            before = partitions.lease_count
            handle(number, Demand(share, worker_pool.run, worker_pool.spread, inline > 0))
            wanted -= partitions.lease_count - before
            handed = handed or partitions.lease_count > before
        self._turn += 1
        return handed

    def wakeup_at(self) -> float | None:
        """Returns None."""
        return None

    def close(self) -> None:
        """Does nothing."""

    def check(self) -> None:
        """Does nothing."""
