"""What a holder or a pool reports to, and leases to hold, for tests without a runner."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafka_pubsub.log.clocks import Durations
from kafka_pubsub.model import NO_RECORDS, AckFuture, Message, RecordReader
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.events import LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement
from kafka_pubsub.subscribe.workers.ack_futures import DurableAcks
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from kafka_pubsub.subscribe.workers.observer import UNOBSERVED, StreamObserver
from tests.partition_ids import P
from tests.support import FakeBody

__all__ = ["PATIENCE", "Reported", "lease_of", "withdraw"]

#: Seconds after which a test gives up; far above what anything here takes.
PATIENCE = 20.0


class Reported:
    """Notes what was reported, and lets a test wait for it."""

    process = 7
    observer: StreamObserver = UNOBSERVED
    callbacks = Durations()
    records: RecordReader = NO_RECORDS

    def __init__(self) -> None:
        self.releases: list[LeaseReport] = []
        self.settlements: list[Settlement] = []
        self.extensions: list[tuple[Lease, int, float]] = []
        self.late = 0
        self.ack_ids: dict[str, Message] = {}
        self.acks = DurableAcks()
        self.changed = threading.Condition()

    def lane(self, number: PartitionId) -> tuple[int, bool]:
        return 0, True

    def released(self, *releases: LeaseReport) -> None:
        with self.changed:
            self.releases.extend(releases)
            self.changed.notify_all()

    def settled(self, settlement: Settlement) -> None:
        with self.changed:
            self.settlements.append(settlement)
            self.changed.notify_all()

    def extended(self, lease: Lease, done: int, seconds: float) -> None:
        self.extensions.append((lease, done, seconds))

    def awaited(self, lease: Lease, message: Message) -> AckFuture:
        return self.acks.ask(lease, message, self.observer, self.make_way)

    def make_way(self) -> None:
        """Whoever waits here commits nothing."""

    def take_over(self) -> None:
        """Nobody walks inline here."""

    def stale(self) -> None:
        self.late += 1

    def handed_out(self, ack_id: str, message: Message) -> None:
        self.ack_ids[ack_id] = message

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns when a report has made the condition true."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), "it was never reported"


def lease_of(first: int = 0, length: int = 1, key: bytes | None = b"k", attempt: int = 1) -> Lease:
    """A lease on records `first`, `first + 1`, ... of a key."""
    return Lease(P[0], 1, key, [FakeBody(offset=first + at, key=key) for at in range(length)], attempt)


def withdraw(lease_runner: LeaseRunner) -> None:
    """What the runner does when a lease is over."""
    lease_runner.withdrawn = lease_runner.stopped = True
