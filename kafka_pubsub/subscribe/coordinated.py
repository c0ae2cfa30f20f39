"""What a coordinator uses: the retry topic's side, waiters for acks, what ends callbacks, a stream's counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from kafka_pubsub.subscribe.partition.effects import Durable, StoreMoves, Undone, Unstored, WriteDeadLetters
from kafka_pubsub.subscribe.partition.events import Ask, LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner

__all__ = ["Counts", "RetrySide", "Waiter", "answer_waiters", "by_partition", "stop_callbacks", "withdraw"]

Report = TypeVar("Report", LeaseReport, Settlement, Ask)


class RetrySide(Protocol):
    """The side of the retry topic (`retry_io`): takes a core's requests, and answers later."""

    def write_moves(self, number: int, epoch: int, effect: StoreMoves) -> None: ...
    def write_dead_letters(self, number: int, epoch: int, effect: WriteDeadLetters) -> None: ...
    def read(self, number: int, epoch: int, offsets: Sequence[int]) -> None: ...
    def trim(self, number: int, offset: int) -> None: ...
    def restart(self, number: int) -> None: ...


class Waiter(Protocol):
    """An ack whose caller waits until it is durable."""

    def durable(self) -> None: ...
    def undone(self, why: Unstored) -> None: ...


@dataclass
class Counts:
    """Counts what a stream has done so far."""

    received: int = 0
    redelivered: int = 0
    stale: int = 0
    commits: int = 0
    moved: int = 0
    dead_lettered: int = 0


def answer_waiters(effect: Durable | Undone) -> None:
    """Tells the waiters for acks whether these are durable."""
    for waiter in cast("Sequence[Waiter]", effect.waiters):
        if isinstance(effect, Durable):
            waiter.durable()
        else:
            waiter.undone(effect.why)


def stop_callbacks(leases: Iterable[Lease]) -> None:
    """Begins no more records of these leases; running callbacks go on to the end of their record."""
    for lease in leases:
        if isinstance(lease.lease_runner, LeaseRunner):
            lease.lease_runner.stopped = True


def withdraw(leases: Iterable[Lease]) -> None:
    """Takes these leases, which are over, away from their lease runners."""
    for lease in leases:
        if isinstance(lease.lease_runner, LeaseRunner):
            lease.lease_runner.withdrawn = lease.lease_runner.stopped = True
        lease.lease_runner = None


def by_partition(reports: Sequence[Report]) -> Mapping[int, list[Report]]:
    """Groups reports by the number of their partition."""
    found: defaultdict[int, list[Report]] = defaultdict(list)
    for report in reports:
        found[report.lease.partition].append(report)
    return found
