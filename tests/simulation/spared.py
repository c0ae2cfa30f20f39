"""A coordinator that checks each tick that it spares a partition: given all the same, it must change nothing."""

from __future__ import annotations

from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.partition.events import Event, Tick
from kafka_pubsub.subscribe.partition.partition import Partition
from tests.simulation.ledger import promise

__all__ = ["SparingCoordinator"]


#: Seconds: times of parked messages are whole microseconds.
ROUNDED = 1e-6


class SparingCoordinator(Coordinator):
    """The coordinator, whose ticks are checked."""

    #: Partitions that got a tick in this sweep; None: between sweeps.
    _ticked: set[PartitionId] | None = None

    def tick(self, now: float, wall: float | None = None) -> None:
        ticked: set[PartitionId] = set()
        self._ticked = ticked
        super().tick(now, wall)
        self._ticked, partitions = None, self.partitions
        for number, partition in list(partitions.owned.items()):
            if number not in ticked and number not in partitions.leaving:
                self._check(partition, now)

    def _check(self, partition: Partition, now: float) -> None:
        wake, due = partition.wakeup_at(), partition._retry_partition.retries.parking.next_due()
        if due is not None and due <= now + ROUNDED and (wake is None or wake > now):
            return  # goes together with messages that are due a moment later
        if partition._retry_partition.retries.moves.due_at() is not None:
            return  # a tick may send them before they are due, where a commit may be sent
        before = _answers(partition)
        effects = partition.handle(
            Tick(partition.number in self.partitions.gate.paused, closing=self.closing), now
        )
        after = _answers(partition)
        promise(not effects, f"{partition.number} was spared a tick that would have said {effects!r}")
        promise(before == after, f"{partition.number} was spared a tick that turns {before} into {after}")

    def _handle(self, number: PartitionId, event: Event, now: float) -> None:
        if isinstance(event, Tick) and self._ticked is not None:
            self._ticked.add(number)
        super()._handle(number, event, now)


def _answers(partition: Partition) -> tuple[object, ...]:
    """A sweep's knowledge of a partition without asking it."""
    half = partition._retry_partition
    told = (partition.wakeup_at(), partition.deliverable, partition._commits.dirty, len(partition._queues))
    return (*told, half.hurried, half.careful_at_all, half.waiting_suspects)
