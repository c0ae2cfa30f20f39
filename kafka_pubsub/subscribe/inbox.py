"""The reports of other threads to a stream's runner: noted here, and taken in its sweeps.

Rules
1. Any thread may report, and none waits. The runner is woken only if it sleeps, or if a caller waits for its answer.
2. An ack that a caller waits for is noted before the message counts as acked, so before the lease report that contains
   the same ack. Hence lease reports are taken out first, and such acks are handled first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from kafka_pubsub.log.clocks import Durations
from kafka_pubsub.model import AckFuture, Message
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.partition.events import LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement
from kafka_pubsub.subscribe.workers.ack_futures import DurableAcks
from kafka_pubsub.subscribe.workers.lease_runner import Reports

__all__ = ["Inbox"]

Word = TypeVar("Word")


class Inbox(Reports):
    """Takes the reports of a stream's lease runners.

    `coordinator` returns the coordinator that gets the reports. `wake` wakes the runner. `take_over` ends an inline
    run that is under way. A thread that is about to wait for a commit calls `make_way`: if it is the thread that
    commits, another one does so from then on.
    """

    def __init__(
        self,
        process: int,
        on_handed_out: Callable[[str, Message], None],
        coordinator: Callable[[], Coordinator],
        wake: Callable[[], None],
        take_over: Callable[[], None],
        make_way: Callable[[], None],
    ) -> None:
        self.process = process
        self._coordinator = coordinator
        self._wake = wake
        self._take_over = take_over
        self._make_way = make_way
        self.ended = threading.Event()
        self.acks = DurableAcks()
        self.callbacks = Durations()
        self._on_handed_out = on_handed_out
        self._releases: deque[LeaseReport] = deque()
        self._settlements: deque[Settlement] = deque()
        self._extensions: deque[tuple[Lease, int, float]] = deque()
        #: One entry for each ack or nack that came too late.
        self._stale: deque[None] = deque()
        #: Whether the runner sleeps, so that a report has to wake it.
        self.asleep = False

    def take_over(self) -> None:
        self._take_over()

    def released(self, *releases: LeaseReport) -> None:
        self._releases.extend(releases)
        if self.asleep:
            self._wake()

    def settled(self, settlement: Settlement) -> None:
        self._settlements.append(settlement)
        self._wake()

    def awaited(self, lease: Lease, message: Message) -> AckFuture:
        future = self.acks.ask(lease, message, self.observer, self._make_way)
        if self.asleep:
            self._wake()
        return future

    def extended(self, lease: Lease, done: int, seconds: float) -> None:
        self._extensions.append((lease, done, seconds))
        self._wake()

    def stale(self) -> None:
        if self.ended.is_set():  # there are no more sweeps
            coordinator = self._coordinator()
            coordinator.counts.stale += 1
            if coordinator.forgotten is not None:
                coordinator.forgotten.too_late()
        else:
            self._stale.append(None)

    def handed_out(self, ack_id: str, message: Message) -> None:
        self._on_handed_out(ack_id, message)

    def lane(self, number: PartitionId) -> tuple[int, bool]:
        return self._coordinator().chooser.lane(number)

    # On the runner

    def has_reports(self) -> bool:
        """Returns whether a report waits."""
        return bool(self._releases or self._settlements or self._extensions or self.acks.asked)

    def take_reports(self, now: float) -> None:
        """Passes all reports so far to the coordinator."""
        coordinator = self._coordinator()
        releases = _drain(self._releases) if self._releases else ()
        self.take_asks(now)
        if releases:
            coordinator.released(releases, now)
        if self._settlements:
            coordinator.settled(_drain(self._settlements), now)
        while self._extensions:
            coordinator.extended(*self._extensions.popleft(), now)
        while self._stale:
            self._stale.popleft()
            coordinator.counts.stale += 1

    def take_asks(self, now: float) -> None:
        """Passes on acks that callers wait for; also called before an inline run reports (`core.events.Awaited`)."""
        if self.acks.asked:
            self._coordinator().awaited(_drain(self.acks.asked), now)


def _drain(line: deque[Word]) -> list[Word]:
    taken = []
    while line:
        taken.append(line.popleft())
    return taken
