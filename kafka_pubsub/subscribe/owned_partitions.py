"""The partitions that a stream owns, those that rest, and callbacks that outlive an ownership.

Theory. Rebalances of the group take partitions away and mostly bring them back. Callbacks that began under an earlier
ownership go on running; `OwnedPartitions` holds their keys back until they end.

Rules
1. A revoked partition is *resting*: its state is kept, and no callback begins. If it returns and the log holds exactly
   our last commit, it goes on where it was; otherwise its leases are over, and it starts anew under a new epoch.
2. A key whose old callback still runs here is held back in the new ownership until that callback has ended.
3. A partition that is about to be given up sends no more commits by itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

from kafka_pubsub.model import Committed
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.due_partitions import DuePartitions
from kafka_pubsub.subscribe.fetch_window import BufferGate, Change, Held
from kafka_pubsub.subscribe.lane_windows import LaneWindows
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.effects import (
    Commit,
    CommitBoth,
    Durable,
    Effect,
    StoreMoves,
    Undone,
    Unstored,
    WriteDeadLetters,
)
from kafka_pubsub.subscribe.partition.events import Ask, Ended, Event, LeaseReport, Lost, Returned, Tick
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState, Settlement
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.settings import Found, Names, Rules, Start
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner

__all__ = [
    "Counts",
    "OwnedPartitions",
    "RetrySide",
    "Waiter",
    "answer_waiters",
    "by_partition",
    "running",
    "stop_callbacks",
    "withdraw",
]

Report = TypeVar("Report", LeaseReport, Settlement, Ask)


class RetrySide(Protocol):
    """The side of the retry topic (`retry_io`): takes a core's requests, and answers later."""

    def write_moves(self, number: PartitionId, epoch: int, effect: StoreMoves) -> None: ...
    def write_dead_letters(self, number: PartitionId, epoch: int, effect: WriteDeadLetters) -> None: ...
    def read(self, number: PartitionId, epoch: int, offsets: Sequence[int]) -> None: ...
    def trim(self, number: PartitionId, offset: int) -> None: ...
    def restart(self, number: PartitionId) -> None: ...


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
    commit_failures: int = 0
    move_failures: int = 0
    #: Partitions that were taken over from an owner that didn't leave in good order.
    takeovers: int = 0
    #: The dead letters by the class of their reason.
    dead_letter_reasons: Counter[str] = field(default_factory=Counter)


class OwnedPartitions:
    """The partitions of one stream, owned and resting, and the leases that are over while their callbacks run."""

    def __init__(
        self,
        rules: Rules,
        process: int,
        jitter: Callable[[], float],
        max_bytes: int,
        turn: TrialLock | None = None,
    ) -> None:
        self._rules = rules
        #: The number of this process in its commits.
        self.process = process
        self._jitter = jitter
        self._suspects = turn or TrialLock()
        self._epochs = 0
        #: The assigned partitions.
        self.owned: dict[PartitionId, Partition] = {}
        #: Revoked partitions that may return.
        self.resting: dict[PartitionId, Partition] = {}
        #: Leases that are over while their callbacks still run; each holds its key back.
        self.lingering: set[Lease] = set()
        #: Partitions that are about to be given up (rule 3).
        self.leaving: set[PartitionId] = set()
        #: Which partitions a sweep must visit.
        self.attention = DuePartitions(self.owned, self.resting, self.leaving)
        self.gate: BufferGate[PartitionId] = BufferGate(max_bytes)
        #: The finished records and committed positions of partitions that are gone.
        self._past_finished = 0
        self._past_positions: dict[PartitionId, int] = {}
        self._past_retries: dict[PartitionId, int] = {}
        #: What messages wait for in other lanes; None: the topic has none, or keys set no order.
        self.names: Names | None = None
        #: Leases that aren't over, of all partitions.
        self.lease_count = 0

    # Events

    def find(self, number: PartitionId) -> Partition | None:
        """Returns an owned or resting partition; None if it is gone."""
        return self.owned.get(number) or self.resting.get(number)

    def find_epoch(self, number: PartitionId, epoch: int) -> Partition | None:
        """Returns the same partition only if it is still under that epoch."""
        partition = self.find(number)
        return partition if partition is not None and partition.epoch == epoch else None

    def epoch_of(self, number: PartitionId) -> int:
        """Returns the epoch of a partition that is here."""
        return (self.owned.get(number) or self.resting[number]).epoch

    def handle(self, number: PartitionId, event: Event, now: float) -> Sequence[Effect]:
        """Passes an event to a partition; returns its effects. A partition that is gone has none."""
        partition = self.find(number)
        if partition is None:
            return ()
        before = len(partition.active)
        effects = partition.handle(event, now)
        self.attention.stir(number, tick=isinstance(event, Tick) and not effects)
        self.lease_count += len(partition.active) - before
        return effects

    def callback_ended(self, lease: Lease, now: float) -> Sequence[Effect]:
        """Releases the key of a lingering lease, whose callback has ended; returns the effects (rule 2)."""
        self.lingering.discard(lease)
        current = self.find(lease.partition)
        if current is None or lease.key is None or current.epoch <= lease.epoch:
            return ()
        return self.handle(lease.partition, Ended([lease.key]), now)

    # Ownership

    def assign(
        self,
        committed: Mapping[PartitionId, Committed],
        begin: Callable[[PartitionId, Committed], Found],
        now: float,
        beside: Mapping[PartitionId, Committed],
    ) -> tuple[
        dict[PartitionId, int], list[tuple[PartitionId, Sequence[Effect]]], Mapping[PartitionId, Found]
    ]:
        """Takes on partitions; returns the offset at which to read each, the effects, and what each begins anew with.

        Drops resting partitions that didn't return. `beside`: the commits stored for their retry partitions.
        """
        starts = {
            number: begin(number, stored)
            for number, stored in committed.items()
            if not self._returns(number, stored, beside[number])
        }
        self.gate.forget(committed)
        positions: dict[PartitionId, int] = {}
        effects: list[tuple[PartitionId, Sequence[Effect]]] = []
        for number, stored in committed.items():
            if number in starts:
                effects.append((number, self._forget(number, now)))
                positions[number] = self._start(number, _stored(stored, beside[number]), starts[number])
            else:
                partition = self.owned[number] = self.resting.pop(number)
                positions[number] = partition.position
                effects.append((number, self.handle(number, Returned(), now)))
        effects += [(number, self._forget(number, now)) for number in list(self.resting)]
        return positions, effects, starts

    def _returns(self, number: PartitionId, committed: Committed, beside: Committed) -> bool:
        """Returns whether a partition rests here, and no other owner has committed since (rule 1)."""
        partition = self.resting.get(number)
        return partition is not None and partition.stored == _stored(committed, beside)

    def _start(self, number: PartitionId, stored: CommitBoth, found: Found) -> int:
        self._epochs += 1
        held_back = [
            lease.key for lease in self.lingering if lease.partition == number and lease.key is not None
        ]
        partition = Partition(
            Start(number, self._epochs, self.process, stored, found, held_back),
            self._rules,
            self._jitter,
            self._suspects,
        )
        partition.follow(self.names)
        self.owned[number] = partition
        self.attention.stir(number)
        return partition.position

    def hold_still(self, numbers: Iterable[PartitionId]) -> None:
        """Stops new commits before a revoke; the final commit then holds everything that is left."""
        self.leaving.update(numbers)
        self.attention.stir_all(self.leaving)

    def begin_nothing(self, numbers: Iterable[PartitionId]) -> None:
        """Begins no more records of these partitions' leases; running callbacks go on to the end of their record."""
        for number in numbers:
            if (partition := self.owned.get(number)) is not None:
                stop_callbacks(partition.active)

    def rest(self, numbers: Iterable[PartitionId]) -> None:
        """Keeps revoked partitions, which may return."""
        for number in numbers:
            if number in self.owned:
                self.resting[number] = self.owned.pop(number)
        self.leaving.difference_update(numbers)
        self.attention.stir_all(numbers)

    def lose(self, numbers: Sequence[PartitionId], now: float) -> list[tuple[PartitionId, Sequence[Effect]]]:
        """Drops partitions that were lost; returns the effects by partition."""
        self.rest(numbers)
        return [(number, self._forget(number, now)) for number in numbers]

    def _forget(self, number: PartitionId, now: float) -> Sequence[Effect]:
        """Drops a resting partition, if it rests; its callbacks linger."""
        partition = self.resting.get(number)
        if partition is None:
            return ()
        self._past_finished += partition.finished
        stored = partition.stored
        self._past_positions[number], self._past_retries[number] = stored.offset, stored.retry.offset
        self.lingering.update(running(partition))
        effects = self.handle(number, Lost(), now)
        del self.resting[number]
        return effects

    def all(self) -> list[Partition]:
        """Returns all partitions, owned and resting; any thread may call it."""
        return [*list(self.owned.values()), *list(self.resting.values())]

    # Looking in

    def finished(self) -> int:
        """Returns the number of records finished since the stream began."""
        return self._past_finished + sum(partition.finished for partition in self.all())

    def committed_positions(self) -> dict[PartitionId, int]:
        """Returns the last committed position of each partition that this stream had."""
        return {
            **self._past_positions,
            **{partition.number: partition.stored.offset for partition in self.all()},
        }

    def retry_positions(self) -> dict[PartitionId, int]:
        """Returns the same for their partitions of the retry topic."""
        stored = {partition.number: partition.stored for partition in self.all()}
        return {**self._past_retries, **{number: commit.retry.offset for number, commit in stored.items()}}

    def waiting_suspects(self) -> int:
        """Returns how many suspects wait for their trial."""
        return sum(self.attention.waiting_suspects.values())

    def suspect_wants_room(self) -> bool:
        """Returns whether a suspect waits only for room."""
        some = (number for number in self.attention.waiting_suspects if number not in self.leaving)
        return any(self.owned[number].wants_turn for number in some)

    def held(self) -> dict[PartitionId, Held]:
        """Returns the unfinished records of each owned partition; any thread may call it."""
        return {number: Held(p.unfinished, p.buffered) for number, p in list(self.owned.items())}

    def room(self, windows: LaneWindows | None = None) -> int:
        """Returns how many records may be fetched now; `windows`: of the topic's lanes, if it has any."""
        held, gate = self.attention.held, self.gate
        return gate.room(held, self.owned) if windows is None else windows.room(held, self.owned, gate.paused)

    def flow(self, windows: LaneWindows | None = None, *, waited: bool) -> Change[PartitionId]:
        """Returns which partitions to pause and resume."""
        held, gate = self.attention.held, self.gate
        if windows is None:
            return gate.change(held, self.owned, waited=waited)
        gate.paused = {number for number in gate.paused if number in self.owned}
        change = windows.change(held, self.owned, gate.paused, waited=waited)
        gate.paused = gate.paused.union(change.pause).difference(change.resume)
        return change

    def check(self) -> None:
        """Checks every partition; for tests."""
        for partition in self.all():
            partition.check()


def _stored(main: Committed, retry: Committed) -> CommitBoth:
    """Returns the stored commits of both partitions in the form in which a core has them."""
    beside = Commit(retry.offset or 0, retry.metadata, retry.epoch)
    return CommitBoth(main.offset or 0, main.metadata, beside, main.epoch)


def running(partition: Partition) -> list[Lease]:
    """Returns leases with a running callback, which hold their keys back, not those that still wait for their note."""

    def runs(lease: Lease) -> bool:
        return lease.state is LeaseState.EXPIRED or (
            lease.state is LeaseState.RUNNING and lease.lease_runner is not None
        )

    return [lease for lease in partition.active if lease.key is not None and runs(lease)]


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


def by_partition(reports: Sequence[Report]) -> Mapping[PartitionId, list[Report]]:
    """Groups reports by the number of their partition."""
    found: defaultdict[PartitionId, list[Report]] = defaultdict(list)
    for report in reports:
        found[report.lease.partition].append(report)
    return found
