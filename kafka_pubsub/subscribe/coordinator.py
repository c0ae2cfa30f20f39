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

from kafka_pubsub.config import FlowControl
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Committed, Ending, LogEnd, StoredRecord, message_id_of
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.chooser import Chooser, OldestFirst
from kafka_pubsub.subscribe.formats.record import attempt_of
from kafka_pubsub.subscribe.owned_partitions import (
    Counts,
    OwnedPartitions,
    RetrySide,
    answer_waiters,
    by_partition,
    running,
    stop_callbacks,
    withdraw,
)
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.effects import (
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
from kafka_pubsub.subscribe.partition.events import (
    Ask,
    Awaited,
    Bodies,
    CommitAnswered,
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
    Revoked,
    Settled,
    Tick,
    Written,
)
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState, Settlement
from kafka_pubsub.subscribe.partition.settings import Found, Rules
from kafka_pubsub.subscribe.workers.forgotten_acks import ForgottenAcks
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from kafka_pubsub.subscribe.workers.observer import UNOBSERVED
from kafka_pubsub.subscribe.workers.thread_workers import Inline, WorkerPool

__all__ = ["Coordinator", "Counts", "RetrySide"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds between two lines about slow callbacks of one stream.
SAY_SLOW = 60.0


class Coordinator:
    """What one stream does about events, on the partitions that it owns."""

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
        self.partitions = OwnedPartitions(rules, process, jitter, flow.max_bytes, turn)
        self._subscription = subscription
        self._flow = flow
        self._worker_pool = worker_pool
        self._beside = beside
        self.counts = Counts()
        #: Is told of ownerships, deadlines and transactions; a history brings its own.
        self.observer = UNOBSERVED
        #: Commits to send, the newest of each partition.
        self.commits: dict[PartitionId, CommitBoth] = {}
        #: New final commits of partitions that were given up, because their last move was aborted.
        self._late_commits: dict[PartitionId, CommitBoth] = {}
        #: Seconds after which a callback is slow, and when to say so next.
        self._slow, self._say_slow_at = rules.ack_deadline, 0.0
        #: Whether the stream ends: revoked partitions don't return then.
        self.closing = False
        #: Warns of callbacks that never ack; None: no warning is wanted.
        self.forgotten: ForgottenAcks | None = None
        #: Chooses among the partitions; lanes bring their own.
        self.chooser: Chooser = OldestFirst()
        #: Leases kept free for messages that inline callbacks keep.
        self._reserved = 0
        #: Inline leases of due messages, which the fetcher is about to take.
        self._inline: list[Lease] = []
        #: The partition that had the last trial of a suspect.
        self._tried: PartitionId | None = None

    # Which partitions there are

    def assign(
        self,
        committed: Mapping[PartitionId, Committed],
        begin: Callable[[PartitionId, Committed], Found],
        now: float,
        beside: Mapping[PartitionId, Committed],
    ) -> dict[PartitionId, int]:
        """Takes on partitions (`OwnedPartitions.assign`); returns the offset at which to read each."""
        positions, effects, begun = self.partitions.assign(committed, begin, now, beside)
        self._carry_out_all(effects, now)
        for number, stored in committed.items():
            epoch = self.partitions.epoch_of(number)
            self.observer.assigned(number, epoch, stored, beside[number], begun.get(number))
        return positions

    def first_commits(self, numbers: Iterable[PartitionId], now: float) -> dict[PartitionId, CommitBoth]:
        """Returns the commits to make before any message of these partitions is delivered."""
        for number in numbers:
            self._handle(number, Tick(), now)
        return {number: self.commits.pop(number) for number in numbers if number in self.commits}

    def revoke(self, numbers: Sequence[PartitionId], now: float) -> dict[PartitionId, CommitBoth]:
        """Revokes partitions and begins no more of their leases; returns their final commits, to be sent."""
        final: dict[PartitionId, CommitBoth] = {}
        for number in numbers:
            if number in self.partitions.owned:
                self.commits.pop(number, None)
                self._handle(number, Revoked(closing=self.closing), now)
                if (commit := self.commits.pop(number, None)) is not None:
                    final[number] = commit
        self.partitions.rest(numbers)
        return final

    def take_late_commits(self) -> dict[PartitionId, CommitBoth]:
        """Returns the commits that partitions still have to send after they were given up."""
        commits, self._late_commits = self._late_commits, {}
        return commits

    def lose(self, numbers: Sequence[PartitionId], now: float) -> None:
        """Drops partitions that were lost; their leases and commits no longer count."""
        self.observer.revoked(numbers, lost=True)
        for number in numbers:
            self.commits.pop(number, None)
        self._carry_out_all(self.partitions.lose(numbers, now), now)

    def go_over(self, beside: RetrySide, now: float) -> None:
        """Goes over to another retry topic; resting partitions don't return."""
        self.lose(list(self.partitions.resting), now)
        self._beside = beside

    def end(self, now: float) -> None:
        """Ends all leases with the stream, so that later lease reports are stale."""
        partitions = self.partitions
        if self.forgotten is not None:
            self.forgotten.closing(lease for each in partitions.all() for lease in each.active)
        self.lose([*partitions.owned, *partitions.resting], now)

    # What happens

    def fetched(
        self, batches: Mapping[PartitionId, Sequence[Record]], now: float, *, inline: int = 0
    ) -> list[Lease]:
        """Takes records that were read; drops those of partitions that aren't owned (they stay in the log).

        Returns the leases that the caller takes itself, of up to `inline` records of each partition.
        """
        leases, chooser = list[Lease](), self.chooser
        for number, records in chooser.sort(batches):
            if number in self.partitions.owned:
                self.counts.received += len(records)
                last = cast("StoredRecord", records[-1])
                after = chooser.waiting(number, records, now)
                passes = (
                    len(records) <= inline and not after and chooser.passes(number, last.offset() or 0, now)
                )
                fetched = Fetched(records, passes, last.leader_epoch(), after)
                for effect in self.partitions.handle(number, fetched, now):
                    if isinstance(effect, Deliver):
                        leases += effect.leases
                chooser.passed(number, len(records) if passes else 0, now)
        return leases

    def retry_fetched(self, batches: Mapping[PartitionId, Sequence[StoredRecord]], now: float) -> None:
        """Takes records of retry partitions; drops those of partitions that aren't owned."""
        for number, records in batches.items():
            if number in self.partitions.owned:
                self._handle(number, RetryFetched(records, records[-1].leader_epoch()), now)

    def caught_up(self, number: PartitionId, position: LogEnd, now: float) -> None:
        """Notes that a retry partition was read up to its end at the assignment."""
        if number in self.partitions.owned:
            self._handle(number, RetryCaughtUp(*position), now)

    def read_up_to(self, number: PartitionId, position: LogEnd, retry: LogEnd, now: float) -> None:
        """Notes up to where a partition and its retry partition were read, markers included."""
        if number in self.partitions.owned:
            self._handle(number, ReadUpTo(position.offset, retry.offset, position.epoch, retry.epoch), now)

    def move_answered(
        self, number: PartitionId, epoch: int, answer: MovesAnswered, moved: int, now: float
    ) -> None:
        """Takes a move result: the transaction has ended; `moved` of its records went to the retry topic."""
        partitions = self.partitions
        if (partition := partitions.find_epoch(number, epoch)) is None:
            return
        if answer.ending is Ending.STORED:
            self.counts.moved += moved
        else:
            self.counts.move_failures += 1
        old = running(partition) if answer.ending is Ending.UNKNOWN else []
        self._handle(number, answer, now)
        if partitions.find_epoch(number, epoch) is None:
            partitions.lingering.update(old)

    def replied(self, number: PartitionId, epoch: int, event: Bodies | Written, now: float) -> None:
        """Takes the bodies of parked messages that were read, or the result of writing dead letters."""
        if self.partitions.find_epoch(number, epoch) is not None:
            self._handle(number, event, now)

    def passed(self, passed: Passed, now: float) -> None:
        """Takes the report of an inline lease that has ended."""
        self._handle(passed.lease.partition, passed, now)

    def reserve(self, most: int) -> int:
        """Keeps up to `most` leases free for messages that inline callbacks keep; returns how many (rule 3)."""
        self._reserved = max(0, min(most, self._flow.max_messages - self.partitions.lease_count))
        return self._reserved

    @property
    def laned(self) -> bool:
        """Whether the topic has lanes."""
        return self.chooser.active

    @property
    def inline_worker(self) -> Inline | None:
        """The worker pool's interface for inline callbacks; None if it has none."""
        return self._worker_pool.inline

    def inline(self, partitions: int) -> bool:
        """Returns whether leases of so many partitions may be taken inline."""
        inline_worker = self.inline_worker
        return (
            not self.closing
            and self._flow.max_messages - self.partitions.lease_count >= partitions
            and inline_worker is not None
            and inline_worker.spares()
        )

    def released(self, releases: Sequence[LeaseReport], now: float) -> None:
        """Takes the reports of lease runners that have ended."""
        if lingering := self.partitions.lingering:
            for lease in (release.lease for release in releases):
                if lease in lingering:
                    self._carry_out(lease.partition, self.partitions.callback_ended(lease, now), now)
        for number, some in by_partition(releases).items():
            self._handle(number, LeasesReported(some), now)

    def settled(self, settlements: Sequence[Settlement], now: float) -> None:
        """Takes acks and nacks that came outside of callbacks."""
        for number, some in by_partition(settlements).items():
            self._handle(number, Settled(some), now)

    def awaited(self, asks: Sequence[Ask], now: float) -> None:
        """Takes acks whose callers wait until they are durable."""
        for number, some in by_partition(asks).items():
            if self.partitions.find(number) is not None:
                self._handle(number, Awaited(some), now)
            else:
                self.counts.stale += len(some)
                answer_waiters(Undone([ask.waiter for ask in some], Unstored.LATE))

    def extended(self, lease: Lease, done: int, seconds: float, now: float) -> None:
        """Moves a message's deadline."""
        self._handle(lease.partition, Extended(lease, done, seconds), now)

    def answered(
        self, commits: Mapping[PartitionId, CommitBoth], accepted: Mapping[PartitionId, bool], now: float
    ) -> None:
        """Takes the log's answers to commits; answers to commits that aren't in flight any more are ignored."""
        for number, commit in commits.items():
            self.counts.commits += accepted[number]
            self.counts.commit_failures += not accepted[number]
            partition = self.partitions.find(number)
            if partition is not None and partition.in_flight is commit:
                self._handle(number, CommitAnswered(accepted[number]), now)

    def doubt(self, now: float) -> None:
        """Begins nothing before the log takes a commit: after a long standstill, others may own the partitions.

        Running callbacks go on to the end of their record.
        """
        for number, partition in list(self.partitions.owned.items()):
            if number in self.partitions.leaving:
                continue
            stop_callbacks(partition.active)
            self._handle(number, Returned(), now)

    def tick(self, now: float, wall: float | None = None) -> None:
        """Does what is due by time: progress, deadlines, redeliveries, commits. `wall`: the wall clock less ours."""
        self.progress(now)
        partitions, paused = self.partitions, self.partitions.gate.paused
        suspects = partitions.waiting_suspects()  # no more are added during the tick
        due = partitions.attention.to_tick(now, paused, wall)
        numbers = [*partitions.owned, *partitions.resting] if due else []
        if suspects and self._tried in numbers:
            # The partition of the last trial comes last: one that always has suspects would leave the others no trial.
            at = numbers.index(self._tried) + 1
            numbers = numbers[at:] + numbers[:at]
        for number in numbers:
            if number not in due:
                continue
            taken = suspects > 0 and self._free() <= 0
            self._handle(number, Tick(number in paused, taken, wall, self.closing), now)
        if suspects:
            tries = (number for number, partition in partitions.owned.items() if partition.tries)
            self._tried = next(tries, self._tried)

    def progress(self, now: float) -> None:
        """Notes how far the lease runners are."""
        steps: defaultdict[PartitionId, list[Progress]] = defaultdict(list)
        for lease_runner in self._worker_pool.running():
            lease, done = lease_runner.lease, lease_runner.done
            if lease_runner.begun and lease.state is LeaseState.RUNNING:
                if done != lease_runner.seen:
                    lease_runner.seen, lease_runner.seen_at = done, now
                elif now - lease_runner.seen_at > self._slow and now >= self._say_slow_at:
                    self._tell_slow(lease_runner, now)
                steps[lease.partition].append(Progress(lease, done, lease_runner.seen_at))
        for number, some in steps.items():
            self._handle(number, Progressed(some), now)

    def _tell_slow(self, lease_runner: LeaseRunner, now: float) -> None:
        records, done = lease_runner.lease.records, lease_runner.done
        if done >= len(records):
            return  # it has ended just now
        self._say_slow_at = now + SAY_SLOW
        record = cast("StoredRecord", records[done])
        log.info(
            "subscription %r: the callback of message %s takes long: %.0f s so far, more than the ack deadline; its "
            "lease is kept while it runs. This is said once in %.0f s",
            self._subscription,
            message_id_of(record),
            now - lease_runner.seen_at,
            SAY_SLOW,
        )

    def wakeup_at(self) -> float | None:
        """Returns when something becomes due by itself; None if nothing does."""
        if self.partitions.suspect_wants_room() and self._free() > 0:
            return 0.0
        times = (self.partitions.attention.wakeup_at(), self.chooser.wakeup_at())
        return min((time for time in times if time is not None), default=None)

    @property
    def restless(self) -> bool:
        """Whether the next tick may do something though no event comes until then, and nothing is due."""
        return self.partitions.attention.restless or bool(self.partitions.gate.paused)

    # What is done about it

    def deliver(self, now: float, *, inline: int = 0) -> bool:
        """Hands out leases that may start now; True if there were any.

        `inline`: the caller takes due ones; and of lanes without an order about so many messages.
        """
        if self.closing:
            return False
        free = max(0, self._free() - self.partitions.suspect_wants_room())

        def handle(number: PartitionId, event: Event) -> None:
            self._handle(number, event, now)

        return self.chooser.deliver(self.partitions, free, self._worker_pool, handle, now, inline=inline)

    def take_inline(self) -> list[Lease]:
        """Returns the inline leases of due messages, which the caller takes."""
        leases, self._inline = self._inline, []
        return leases

    def _free(self) -> int:
        """Returns how many more messages may be started (rule 3)."""
        started = self.partitions.lease_count - self.partitions.waiting_suspects()
        return self._flow.max_messages - started - self._reserved

    def stop(self) -> None:
        """Begins nothing more (closing); running callbacks go on to the end of their record."""
        self.closing = True
        partitions = self.partitions
        partitions.attention.stir_all(partitions.owned)  # a tick has more effects while closing
        for partition in partitions.all():
            stop_callbacks(partition.active)

    def take_commits(self) -> dict[PartitionId, CommitBoth]:
        """Returns the commits to send now."""
        commits, self.commits = self.commits, {}
        return commits

    def current(self, commits: Mapping[PartitionId, CommitBoth]) -> dict[PartitionId, CommitBoth]:
        """Returns the commits that are still wanted: a partition that was revoked meanwhile had its final commit."""
        owned = self.partitions.owned
        return {
            number: commit
            for number, commit in commits.items()
            if number in owned and owned[number].in_flight is commit
        }

    def _handle(self, number: PartitionId, event: Event, now: float) -> None:
        """Passes an event to a partition and carries out the effects; a partition that is gone ignores it."""
        effects = self.partitions.handle(number, event, now)
        if effects:
            if isinstance(event, Tick):
                self._expiring(effects)
            self._carry_out(number, effects, now)

    def _expiring(self, effects: Sequence[Effect]) -> None:
        """Reports deadlines that have passed."""
        self.observer.expiring(effects)
        if self.forgotten is not None:
            self.forgotten.expiring(effects)

    def _carry_out_all(self, effects: Iterable[tuple[PartitionId, Sequence[Effect]]], now: float) -> None:
        for number, some in effects:
            self._carry_out(number, some, now)

    def _carry_out(self, number: PartitionId, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            match effect:
                case Deliver(leases, inline):
                    self._hand_out(number, leases, now, inline=inline)
                case CommitBoth():
                    (self.commits if number in self.partitions.owned else self._late_commits)[number] = effect
                case Stop(leases):
                    stop_callbacks(leases)
                case Withdraw(leases):
                    withdraw(leases)
                case Stale(count):
                    self.counts.stale += count
                case Durable() | Undone():
                    answer_waiters(effect)
                case Announce():
                    self._announce(number, effect)
                case StoreMoves() | WriteDeadLetters() | ReadBodies() | Trim() | Restart():
                    self._have_done(number, effect, now)

    def _hand_out(self, number: PartitionId, leases: Sequence[Lease], now: float, *, inline: bool) -> None:
        if inline:
            self.counts.redelivered += sum(attempt_of(r) > 1 for each in leases for r in each.records)
            self._inline += leases
            return
        if self.closing:  # these leases waited for their notes; no thread takes them now
            self._handle(
                number,
                LeasesReported([LeaseReport(lease, 0, LeaseOutcome.UNTOUCHED) for lease in leases]),
                now,
            )
            return
        self.counts.redelivered += sum(lease.attempt > 1 for lease in leases)
        self._worker_pool.take(leases)

    def _have_done(
        self,
        number: PartitionId,
        effect: StoreMoves | WriteDeadLetters | ReadBodies | Trim | Restart,
        now: float,
    ) -> None:
        """Carries out an effect that concerns the retry topic."""
        beside, partitions = self._beside, self.partitions
        match effect:
            case StoreMoves():
                epoch = partitions.epoch_of(number)
                self.observer.storing(number, epoch, effect)
                beside.write_moves(number, epoch, effect)
            case WriteDeadLetters():
                beside.write_dead_letters(number, partitions.epoch_of(number), effect)
            case ReadBodies(offsets):
                beside.read(number, partitions.epoch_of(number), offsets)
            case Trim(offset):
                beside.trim(number, offset)
            case Restart():
                self.lose([number], now)
                beside.restart(number)

    def _announce(self, number: PartitionId, said: Announce) -> None:
        rejected = said.news is News.REJECTED
        if rejected or said.news is News.DEAD_LETTER:
            self.counts.dead_lettered += 1
            self.counts.dead_letter_reasons["rejected" if rejected else _class_of(said.detail)] += 1
        # A callback may reject every message of a topic, and knows that it does.
        level = logging.DEBUG if rejected else logging.WARNING
        log.log(level, "subscription %r, partition %s: %s", self._subscription, number, _text_of(said))

    def in_flight(self) -> int:
        """The number of leases that aren't over."""
        return self.partitions.lease_count


def _class_of(reason: str) -> str:
    """Returns the class of a dead letter's reason: there are few, as a metric's label wants it."""
    known = {"attempts used up": "attempts_used_up", "dropped by a release, attempts used up": "dropped"}
    return known.get(reason, "unreadable")


def _text_of(said: Announce) -> str:
    """Returns the news for the log; a message is named by its id, as everywhere."""
    message = "" if said.message is None else message_id_of(cast("StoredRecord", said.message))
    details = ": ".join(filter(None, (message, said.detail)))
    return f"{said.news.value} ({details})" if details else said.news.value
