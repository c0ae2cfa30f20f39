"""The subscription coordinator: owns the core's partitions, passes events to them and carries out their effects.

Theory. One thread (the runner's) calls everything here, so there is no lock. Partitions come and go with the
group's rebalances; effects become calls to the worker pool, and commits for the reader. The coordinator uses no thread
and no clock, so the simulation drives it step by step.

Rules
1. `owned_partitions` keeps the partitions, and the callbacks that outlive an ownership.
2. A partition that begins anew (`Restart`) is gone until it is assigned again; its callbacks linger.
3. `max_messages` counts messages that were started and not finished, over all partitions. A lease counts one, because
   only one of its records is with a callback. A suspect that waits for its trial isn't started; while it waits only for
   room, the next room is its own, or other messages would take all room that becomes free.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from kafka_pubsub.client.subscribe.coordinated import Counts, RetrySide, Waiter
from kafka_pubsub.client.subscribe.owned_partitions import OwnedPartitions, running
from kafka_pubsub.client.workers.lease_runner import LeaseRunner
from kafka_pubsub.client.workers.thread_workers import Inline, WorkerPool
from kafka_pubsub.config import FlowControl
from kafka_pubsub.core.delivery.fetch_window import Change, Held
from kafka_pubsub.core.delivery.leases import Lease, LeaseState, Settlement, attempt_of
from kafka_pubsub.core.effects import (
    Announce,
    CommitBoth,
    Deliver,
    Durable,
    Effect,
    News,
    ReadBodies,
    Restart,
    Stale,
    Stop,
    StoreMoves,
    Trim,
    Undone,
    Unstored,
    Withdraw,
    WriteDeadLetters,
)
from kafka_pubsub.core.events import (
    Ask,
    Awaited,
    Bodies,
    CommitAnswered,
    Demand,
    Ended,
    Event,
    Extended,
    Fetched,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    MovesAnswered,
    Passed,
    Progress,
    Progressed,
    ReadUpTo,
    RetryCaughtUp,
    RetryFetched,
    Returned,
    Settled,
    Tick,
    Written,
)
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.records import Record
from kafka_pubsub.core.retry.crash_suspects import TrialLock
from kafka_pubsub.core.settings import Rules
from kafka_pubsub.model import Ending, LogEnd, StoredRecord

__all__ = ["Coordinator", "Counts", "RetrySide"]

log = logging.getLogger("kafka_pubsub.subscriber")


class Coordinator(OwnedPartitions):
    """The partitions of one stream."""

    def __init__(
        self,
        rules: Rules,
        flow: FlowControl,
        worker_pool: WorkerPool,
        process: int,
        jitter: Callable[[], float],
        beside: RetrySide,
        turn: TrialLock | None = None,
        subscription: str = "",
    ) -> None:
        super().__init__(rules, process, jitter, flow.max_bytes, turn)
        self._subscription = subscription
        self._flow = flow
        self._worker_pool = worker_pool
        self._beside = beside
        self.counts = Counts()
        #: Leases kept free for messages that inline callbacks keep.
        self._reserved = 0
        self._turn = 0
        #: Inline leases of due messages, which the fetcher is about to take.
        self._inline: list[Lease] = []
        #: The partition that had the last trial of a suspect.
        self._tried: int | None = None

    def go_over(self, beside: RetrySide, now: float) -> None:
        """Goes over to another retry topic; resting partitions don't return."""
        self.lose(list(self.resting), now)
        self._beside = beside

    # What happens

    def fetched(
        self, batches: Mapping[int, Sequence[Record]], now: float, *, inline: bool = False
    ) -> list[Lease]:
        """Takes records that were read; drops those of partitions that aren't owned (they stay in the log).

        Returns the leases that a caller with `inline` has to take itself.
        """
        leases: list[Lease] = []
        for number, records in batches.items():
            partition = self.owned.get(number)
            if partition is not None:
                self.counts.received += len(records)
                self.attention.stir(number)
                epoch = cast("StoredRecord", records[-1]).leader_epoch()
                for effect in partition.handle(Fetched(records, inline, epoch), now):
                    if isinstance(effect, Deliver):
                        leases += effect.leases
        self._leased += len(leases)
        return leases

    def retry_fetched(self, batches: Mapping[int, Sequence[StoredRecord]], now: float) -> None:
        """Takes records of retry partitions; drops those of partitions that aren't owned."""
        for number, records in batches.items():
            if number in self.owned:
                self._do(number, RetryFetched(records, records[-1].leader_epoch()), now)

    def caught_up(self, number: int, position: LogEnd, now: float) -> None:
        """Notes that a retry partition was read up to its end at the assignment."""
        if number in self.owned:
            self._do(number, RetryCaughtUp(*position), now)

    def read_up_to(self, number: int, position: LogEnd, retry: LogEnd, now: float) -> None:
        """Notes up to where a partition and its retry partition were read, markers included."""
        if number in self.owned:
            self._do(number, ReadUpTo(position.offset, retry.offset, position.epoch, retry.epoch), now)

    def landed(self, number: int, epoch: int, answer: MovesAnswered, moved: int, now: float) -> None:
        """Takes a move result: the transaction has ended; `moved` of its records went to the retry topic."""
        if (partition := self._under(number, epoch)) is None:
            return
        if answer.ending is Ending.STORED:
            self.counts.relocated += moved
        old = running(partition) if answer.ending is Ending.UNKNOWN else []
        self._do(number, answer, now)
        if self._under(number, epoch) is None:
            self._lingering.update(old)

    def replied(self, number: int, epoch: int, event: Bodies | Written, now: float) -> None:
        """Takes the bodies of parked messages that were read, or the result of writing dead letters."""
        if self._under(number, epoch) is not None:
            self._do(number, event, now)

    def _under(self, number: int, epoch: int) -> Partition | None:
        partition = self.owned.get(number) or self.resting.get(number)
        return partition if partition is not None and partition.epoch == epoch else None

    def passed(self, passed: Passed, now: float) -> None:
        """Takes the report of an inline lease that has ended."""
        self._to(passed.lease.partition, passed, now)

    def reserve(self, most: int) -> int:
        """Keeps up to `most` leases free for messages that inline callbacks keep; returns how many (rule 3)."""
        self._reserved = max(0, min(most, self._flow.max_messages - self._leased))
        return self._reserved

    @property
    def seat(self) -> Inline | None:
        """The worker pool's interface for inline callbacks; None if it has none."""
        return self._worker_pool.inline

    def inline(self, partitions: int) -> bool:
        """Returns whether leases of so many partitions may be taken inline."""
        seat = self.seat
        return (
            not self.closing
            and self._flow.max_messages - self._leased >= partitions
            and seat is not None
            and seat.spares()
        )

    def released(self, releases: Sequence[LeaseReport], now: float) -> None:
        """Takes the reports of lease runners that have ended."""
        by_partition: defaultdict[int, list[LeaseReport]] = defaultdict(list)
        for release in releases:
            lease = release.lease
            if self._lingering and lease in self._lingering:
                self._lingered(lease, now)
            by_partition[lease.partition].append(release)
        for number, some in by_partition.items():
            self._to(number, LeasesReported(some), now)

    def _lingered(self, lease: Lease, now: float) -> None:
        self._lingering.discard(lease)
        current = self.owned.get(lease.partition) or self.resting.get(lease.partition)
        if current is not None and lease.key is not None and current.epoch > lease.epoch:
            self.attention.stir(lease.partition)
            self._effects(lease.partition, current.handle(Ended([lease.key]), now), now)

    def settled(self, settlements: Sequence[Settlement], now: float) -> None:
        """Takes acks and nacks that came outside of callbacks."""
        by_partition: defaultdict[int, list[Settlement]] = defaultdict(list)
        for settlement in settlements:
            by_partition[settlement.lease.partition].append(settlement)
        for number, some in by_partition.items():
            self._to(number, Settled(some), now)

    def awaited(self, asks: Sequence[Ask], now: float) -> None:
        """Takes acks whose callers wait until they are durable."""
        by_partition: defaultdict[int, list[Ask]] = defaultdict(list)
        for ask in asks:
            by_partition[ask.lease.partition].append(ask)
        for number, some in by_partition.items():
            if number in self.owned or number in self.resting:
                self._do(number, Awaited(some), now)
            else:
                self.counts.stale += len(some)
                self._tell(Undone([ask.waiter for ask in some], Unstored.LATE))

    def _tell(self, effect: Durable | Undone) -> None:
        for waiter in cast("Sequence[Waiter]", effect.waiters):
            if isinstance(effect, Durable):
                waiter.durable()
            else:
                waiter.undone(effect.why)

    def extended(self, lease: Lease, done: int, seconds: float, now: float) -> None:
        """Moves a message's deadline."""
        self._to(lease.partition, Extended(lease, done, seconds), now)

    def answered(self, commits: Mapping[int, CommitBoth], accepted: Mapping[int, bool], now: float) -> None:
        """Takes the log's answers to commits; answers to commits that aren't in flight any more are ignored."""
        for number, commit in commits.items():
            self.counts.commits += accepted[number]
            if self._in_flight(number) is commit:
                self._do(number, CommitAnswered(accepted[number]), now)

    def _in_flight(self, number: int) -> CommitBoth | None:
        partition = self.owned.get(number) or self.resting.get(number)
        return None if partition is None else partition.commits.in_flight

    def doubt(self, now: float) -> None:
        """Begins nothing before the log takes a commit: after a long standstill, others may own the partitions.

        Running callbacks go on to the end of their record.
        """
        for number, partition in list(self.owned.items()):
            if number in self._leaving:
                continue
            self._stop(partition.leases.active)
            self._do(number, Returned(), now)

    def tick(self, now: float, wall: float | None = None) -> None:
        """Does what is due by time: progress, deadlines, redeliveries, commits. `wall`: the wall clock less ours."""
        self.progress(now)
        benched = self._benched()  # no more are added during the tick
        due = self.attention.to_tick(now, self.gate.paused, wall)
        numbers = [*self.owned, *self.resting] if due else []
        if benched and self._tried in numbers:
            # The partition of the last trial comes last: one that always has suspects would leave the others no trial.
            at = numbers.index(self._tried) + 1
            numbers = numbers[at:] + numbers[:at]
        for number in numbers:
            if number not in due:
                continue
            taken = benched > 0 and self._free() <= 0
            self._to(number, Tick(number in self.gate.paused, taken, wall, self.closing), now)
        if benched:
            self._tried = next((number for number in self.owned if self._tries(number)), self._tried)

    def _tries(self, number: int) -> bool:
        return self.owned[number].half.tries

    def progress(self, now: float) -> None:
        """Notes how far the lease runners are."""
        steps: defaultdict[int, list[Progress]] = defaultdict(list)
        for holder in self._worker_pool.walking():
            lease, done = holder.lease, holder.done
            if holder.begun and lease.state is LeaseState.WALKING:
                if done != holder.seen:
                    holder.seen, holder.seen_at = done, now
                steps[lease.partition].append(Progress(lease, done, holder.seen_at))
        for number, some in steps.items():
            self._to(number, Progressed(some), now)

    def wakeup_at(self) -> float | None:
        """Returns when something becomes due by itself; None if nothing does."""
        return 0.0 if self._wants_turn() and self._free() > 0 else self.attention.wakeup_at()

    @property
    def restless(self) -> bool:
        """Whether the next tick may do something though no event comes until then, and nothing is due."""
        return self.attention.restless or bool(self.gate.paused)

    # What is done about it

    def deliver(self, now: float, *, inline: bool = False) -> bool:
        """Hands out leases that may start now; True if there were any. `inline`: the caller takes due ones."""
        if self.closing:
            return False
        wanted = self._worker_pool.wants(max(0, self._free() - self._wants_turn()))
        numbers = self.attention.deliverable() if wanted > 0 else []
        handed = False
        for at in range(len(numbers)):
            if wanted <= 0:
                break
            share = -(-wanted // (len(numbers) - at))
            number = numbers[(at + self._turn) % len(numbers)]
            before = self._leased
            self._do(number, Demand(share, self._worker_pool.run, self._worker_pool.spread, inline), now)
            wanted -= self._leased - before
            handed = handed or self._leased > before
        self._turn += 1
        return handed

    def take_inline(self) -> list[Lease]:
        """Returns the inline leases of due messages, which the caller takes."""
        leases, self._inline = self._inline, []
        return leases

    def _free(self) -> int:
        """Returns how many more messages may be started (rule 3)."""
        return self._flow.max_messages - self._leased + self._benched() - self._reserved

    def _benched(self) -> int:
        return sum(self.attention.benched.values())

    def _wants_turn(self) -> bool:
        """Returns whether a suspect waits only for room."""
        some = (each for each in self.attention.benched if each not in self._leaving)
        return any(self.owned[each].half.wants_turn for each in some)

    def stop(self) -> None:
        """Begins nothing more (closing); running callbacks go on to the end of their record."""
        self.closing = True
        self.attention.stir_all(self.owned)  # a tick has more effects while closing
        for partition in self._all():
            self._stop(partition.leases.active)

    def held(self) -> dict[int, Held]:
        """Returns the unfinished records of each owned partition; any thread may call it."""
        return {number: Held(len(p.offsets.unfinished), p.buffered) for number, p in list(self.owned.items())}

    def room(self) -> int:
        """Returns how many records may be fetched now."""
        return self.gate.room(self.attention.held, self.owned)

    def flow(self, *, waited: bool) -> Change[int]:
        """Returns which partitions to pause and resume."""
        return self.gate.change(self.attention.held, self.owned, waited=waited)

    def take_commits(self) -> dict[int, CommitBoth]:
        """Returns the commits to send now."""
        commits, self.commits = self.commits, {}
        return commits

    def current(self, commits: Mapping[int, CommitBoth]) -> dict[int, CommitBoth]:
        """Returns the commits that are still wanted: a partition that was revoked meanwhile had its final commit."""
        owned = self.owned
        return {
            number: commit
            for number, commit in commits.items()
            if number in owned and owned[number].commits.in_flight is commit
        }

    def _to(self, number: int, event: Event, now: float) -> None:
        if number in self.owned or number in self.resting:
            self._do(number, event, now)

    def _do(self, number: int, event: Event, now: float) -> None:
        partition = self.owned.get(number) or self.resting[number]
        before = len(partition.leases.active)
        effects = partition.handle(event, now)
        self.attention.stir(number, tick=isinstance(event, Tick) and not effects)
        self._leased += len(partition.leases.active) - before
        if effects:
            if isinstance(event, Tick):
                self._expiring(effects)
            self._effects(number, effects, now)

    def _expiring(self, effects: Sequence[Effect]) -> None:
        """Reports deadlines that have passed."""
        if self.forgotten is not None:
            self.forgotten.expiring(effects)

    def _effects(self, number: int, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            match effect:
                case Deliver(leases, inline):
                    self._hand_out(number, leases, now, inline=inline)
                case CommitBoth():
                    (self.commits if number in self.owned else self.afterwords)[number] = effect
                case Stop(leases):
                    self._stop(leases)
                case Withdraw(leases):
                    self._withdraw(leases)
                case Stale(verdicts):
                    self.counts.stale += verdicts
                case Durable() | Undone():
                    self._tell(effect)
                case Announce(news, detail):
                    self._announce(number, news, detail)
                case StoreMoves() | WriteDeadLetters() | ReadBodies() | Trim() | Restart():
                    self._have_done(number, effect, now)

    def _hand_out(self, number: int, leases: Sequence[Lease], now: float, *, inline: bool) -> None:
        if inline:
            self.counts.redelivered += sum(attempt_of(r) > 1 for each in leases for r in each.records)
            self._inline += leases
            return
        if self.closing:  # these leases waited for their notes; no thread takes them now
            self._to(
                number,
                LeasesReported([LeaseReport(lease, 0, LeaseOutcome.UNTOUCHED) for lease in leases]),
                now,
            )
            return
        self.counts.redelivered += sum(lease.attempt > 1 for lease in leases)
        self._worker_pool.take(leases)

    def _withdraw(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            if isinstance(lease.holder, LeaseRunner):
                lease.holder.withdrawn = lease.holder.stopped = True
            lease.holder = None

    def _have_done(
        self, number: int, effect: StoreMoves | WriteDeadLetters | ReadBodies | Trim | Restart, now: float
    ) -> None:
        """Carries out an effect that concerns the retry topic."""
        beside, partition = self._beside, self.owned.get(number) or self.resting[number]
        match effect:
            case StoreMoves():
                beside.relocate(number, partition.epoch, effect)
            case WriteDeadLetters():
                beside.bury(number, partition.epoch, effect)
            case ReadBodies(offsets):
                beside.read(number, partition.epoch, offsets)
            case Trim(offset):
                beside.trim(number, offset)
            case Restart():
                self.lose([number], now)
                beside.restart(number)

    def _announce(self, number: int, news: News, detail: str) -> None:
        self.counts.dead_lettered += news is News.DEAD_LETTER
        told = detail and f" ({detail})"
        log.warning("subscription %r, partition %d: %s%s", self._subscription, number, news.value, told)

    def _stop(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            if isinstance(lease.holder, LeaseRunner):
                lease.holder.stopped = True

    # Looking in

    def in_flight(self) -> int:
        """The number of leases that aren't over."""
        return self._leased

    def check(self) -> None:
        """Checks every partition; for tests."""
        for partition in self._all():
            partition.check()
