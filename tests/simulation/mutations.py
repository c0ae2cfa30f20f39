"""The client, broken on purpose in a single place: the simulation must notice.

Each mutation is a line or rule of the client that somebody could lose. The class is patched, so
that the code itself stays whole; `MUTATIONS` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappush

import pytest

from kafka_pubsub.log.memory.reader import MemoryReader
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Committed, Message, Run
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.formats.record import Why
from kafka_pubsub.subscribe.inbox import Inbox
from kafka_pubsub.subscribe.owned_partitions import OwnedPartitions
from kafka_pubsub.subscribe.partition import inline_lease
from kafka_pubsub.subscribe.partition.commits import Commits
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.effects import CommitBoth, Effect, Stop, Withdraw
from kafka_pubsub.subscribe.partition.events import Event, LeaseOutcome, LeaseReport, Passed, Returned
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.lease_outcomes import LeaseReports, RecordOutcomes
from kafka_pubsub.subscribe.partition.leases import Lease, Leases, LeaseState
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition
from kafka_pubsub.subscribe.partition.settings import Rules, Start
from kafka_pubsub.subscribe.workers.inline_runner import InlineLeaseRunner
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner, Reports

__all__ = ["MUTATIONS", "Mutation"]

Mutation = Callable[[pytest.MonkeyPatch], None]


# Fencing (I4)


def old_releases_count(patch: pytest.MonkeyPatch) -> None:
    """A release of a lease that is over is booked like any other."""

    def released(self: LeaseReports, event: object, now: float) -> Sequence[Effect]:
        for release in event.releases:  # type: ignore[attr-defined]
            self.release(release, now)
        return ()

    patch.setattr(LeaseReports, "released", released)


def old_settlements_count(patch: pytest.MonkeyPatch) -> None:
    """A report finishes its record, whatever has become of its lease."""

    def settled(self: LeaseReports, event: object, now: float) -> Sequence[Effect]:
        for settlement in event.settlements:  # type: ignore[attr-defined]
            record = settlement.lease.records[settlement.done]
            places = self._outcomes
            if settlement.acked and record.offset() in places._offsets.unfinished:
                places.book([record])
            self._settle(settlement, now)
        return ()

    patch.setattr(LeaseReports, "settled", settled)


def last_written_counts(patch: pytest.MonkeyPatch) -> None:
    """A resting partition goes on though somebody else has committed since."""

    def returns(self: OwnedPartitions, number: PartitionId, committed: Committed, beside: Committed) -> bool:
        return number in self.resting

    patch.setattr(OwnedPartitions, "_returns", returns)


def lost_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Lost partitions rest, as if they had been revoked."""

    def lose(self: Coordinator, numbers: Sequence[PartitionId], now: float) -> None:
        self.revoke(numbers, now)

    patch.setattr(Coordinator, "lose", lose)
    last_written_counts(patch)


def reports_uncounted(patch: pytest.MonkeyPatch) -> None:
    """Late reports aren't counted."""
    patch.setattr(Inbox, "stale", lambda self: None)


def callbacks_go_on_after_revoke(patch: pytest.MonkeyPatch) -> None:
    """Holders of a revoked partition begin further records."""
    real = Partition._revoked

    def revoked(self: Partition, event: object, now: float) -> Sequence[Effect]:
        return [effect for effect in real(self, event, now) if not isinstance(effect, Stop)]  # type: ignore[arg-type]

    patch.setattr(Partition, "_revoked", revoked)
    patch.setattr(OwnedPartitions, "begin_nothing", lambda self, numbers: None)


# Commits (I2, I5)


def commit_before_ack(patch: pytest.MonkeyPatch) -> None:
    """The oldest unfinished record counts as finished."""

    def committable(self: Offsets) -> int:
        return next(iter(list(self.unfinished)[1:]), self.position)

    real = Offsets.progress

    def progress(
        self: Offsets, gone: Collection[int]
    ) -> tuple[int, Sequence[Run], Callable[[], Sequence[Run]]]:
        _, new_runs, all_runs = real(self, gone)
        return committable(self), new_runs, all_runs

    patch.setattr(Offsets, "committable", property(committable))
    patch.setattr(Offsets, "progress", progress)


def commit_at_begin(patch: pytest.MonkeyPatch) -> None:
    """Messages that were handed out count as finished."""
    real = Leases.open

    def open_lease(self: Leases, lease: Lease) -> None:
        real(self, lease)
        lease.records = list(lease.records)

    patch.setattr(Leases, "open", open_lease)
    patch.setattr(Offsets, "committable", property(lambda self: self.position))


def map_truncated(patch: pytest.MonkeyPatch) -> None:
    """Only the first run is kept."""
    real = Offsets.runs
    patch.setattr(Offsets, "runs", lambda self: real(self)[:1])


def known_not_skipped(patch: pytest.MonkeyPatch) -> None:
    """Messages that an earlier map calls finished are delivered again."""
    patch.setattr(Offsets, "_news", lambda self, records: [r for r in records if r.offset() >= self.position])


def known_not_kept(patch: pytest.MonkeyPatch) -> None:
    """An earlier map is forgotten with the first commit."""
    real = Offsets.runs

    def runs(self: Offsets) -> list[Run]:
        return [run for run in real(self) if run not in self.known]

    patch.setattr(Offsets, "runs", runs)


def refusal_taken_for_success(patch: pytest.MonkeyPatch) -> None:
    """A refused commit isn't sent again."""
    real = Commits.answered
    patch.setattr(Commits, "answered", lambda self, *, accepted, **more: real(self, accepted=True, **more))


def revoked_commits_sent(patch: pytest.MonkeyPatch) -> None:
    """A commit that waits while its partition is revoked is sent all the same."""
    patch.setattr(Coordinator, "current", lambda self, commits: dict(commits))


def no_final_commit(patch: pytest.MonkeyPatch) -> None:
    """A partition goes without a last commit."""
    patch.setattr(RetryPartition, "final_commit", lambda self, now, closing: None)
    patch.setattr(OwnedPartitions, "_returns", lambda self, number, committed, beside: False)


# Order and holders (I1)


def blocked_key_evicted(patch: pytest.MonkeyPatch) -> None:
    """A key whose queue is empty is forgotten while its records are with a holder."""
    real = KeyQueues.take

    def take(self: KeyQueues, limit: int, below: int | None = None) -> list[Record]:
        taken = real(self, limit, below)
        key = taken[0].key() if taken else None
        if key is not None and not self.queues.get(key, [None]):
            del self.queues[key]
        return taken

    def put_back(self: KeyQueues, key: bytes | None, records: Sequence[Record]) -> None:
        if key is not None:
            self.queues.setdefault(key, [])
        real_put_back(self, key, records)

    def unblock_all(self: KeyQueues, keys: Sequence[bytes | None]) -> None:
        for key in keys:
            if key in self.blocked:
                self.queues.setdefault(key, [])
                real_unblock(self, [key])

    real_put_back, real_unblock = KeyQueues.put_back, KeyQueues.unblock_all
    patch.setattr(KeyQueues, "take", take)
    patch.setattr(KeyQueues, "put_back", put_back)
    patch.setattr(KeyQueues, "unblock_all", unblock_all)
    patch.setattr(KeyQueues, "check", lambda self: None)


def held_back_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A new ownership doesn't know which keys old handlers still have."""
    real = Partition.__init__

    def init(
        self: Partition,
        start: Start,
        rules: Rules,
        jitter: Callable[[], float],
        turn: TrialLock | None = None,
    ) -> None:
        real(self, start._replace(held_back=()), rules, jitter, turn)

    patch.setattr(Partition, "__init__", init)
    patch.setattr(Partition, "_ended", lambda self, event, now: ())


def expired_key_given_away(patch: pytest.MonkeyPatch) -> None:
    """A lease that expires gives its key away while its handler still runs."""
    real = Leases.due

    def due(self: Leases, now: float) -> list[Lease]:
        leases = real(self, now)
        for lease in leases:
            lease.state = LeaseState.KEPT
        return leases

    patch.setattr(Leases, "due", due)


def redelivery_behind(patch: pytest.MonkeyPatch) -> None:
    """Messages that weren't acked queue up behind their successors."""

    def put_back(self: KeyQueues, key: bytes | None, records: Sequence[Record]) -> None:
        (self.loose if key is None or not self._ordered else self.queues[key]).extend(records)

    patch.setattr(KeyQueues, "put_back", put_back)
    patch.setattr(KeyQueues, "check", lambda self: None)


def backoff_frees_the_key(patch: pytest.MonkeyPatch) -> None:
    """A record in backoff doesn't hold its key: its successors overtake it."""
    real = RecordOutcomes.fail

    def fail(
        self: RecordOutcomes, lease: Lease, why: Why, delay: float | None, error: str, now: float
    ) -> None:
        real(self, lease, why, delay, error, now)
        queues = self._queues
        if lease.key is not None and (waiting := queues.queues.get(lease.key)):
            heappush(queues.ready, (waiting[0].offset(), lease.key))

    patch.setattr(RecordOutcomes, "fail", fail)
    patch.setattr(KeyQueues, "check", lambda self: None)


# Inline walking (I1, I3)


def skip_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The fetcher goes on with a key of which it has left a record."""
    real = InlineLeaseRunner._leaves

    def leaves(self: InlineLeaseRunner, message: Message, record: Record) -> bool:
        left = real(self, message, record)
        self._skip.clear()
        return left

    patch.setattr(InlineLeaseRunner, "_leaves", leaves)


def left_key_free(patch: pytest.MonkeyPatch) -> None:
    """A record that was left doesn't hold its key."""
    real = KeyQueues.unblock_all

    def unblock_all(self: KeyQueues, keys: Sequence[bytes | None]) -> None:
        real(self, [key for key in keys if key in self.blocked])

    patch.setattr(Partition, "_block", lambda self, key: None)
    patch.setattr(KeyQueues, "unblock_all", unblock_all)
    patch.setattr(KeyQueues, "put_back", lambda self, key, records: self.add(records))
    patch.setattr(Partition, "check", lambda self: None)


def rest_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Messages that a walk that was taken over hadn't begun count as taken."""
    _passed_as(
        patch,
        lambda passed: passed._replace(reached=len(passed.lease.records)) if not passed.current else passed,
    )


def rest_put_back_twice(patch: pytest.MonkeyPatch) -> None:
    """The take-over and the walking thread both give back messages that hadn't begun."""
    _passed_as(
        patch,
        lambda passed: passed._replace(
            skipped=[*passed.skipped, *passed.lease.records[passed.reached + passed.current :]]
        ),
    )
    patch.setattr(Partition, "check", lambda self: None)


def current_unsaid(patch: pytest.MonkeyPatch) -> None:
    """A take-over gives back the record that is with its callback, as if it hadn't begun."""
    _passed_as(patch, lambda passed: passed._replace(current=False))


def kept_without_limit(patch: pytest.MonkeyPatch) -> None:
    """Nobody counts the messages that inline callbacks keep."""
    real = InlineLeaseRunner.__init__

    def init(self: InlineLeaseRunner, lease: Lease, reports: Reports, *, ordered: bool, spare: int) -> None:
        real(self, lease, reports, ordered=ordered)

    patch.setattr(InlineLeaseRunner, "__init__", init)


def busy_key_run(patch: pytest.MonkeyPatch) -> None:
    """The fetcher takes records of keys that wait, or are with somebody."""
    patch.setattr(inline_lease, "apart", lambda records, *busy: (records, []))
    patch.setattr(Partition, "check", lambda self: None)


def _passed_as(monkeypatch: pytest.MonkeyPatch, change: Callable[[Passed], Passed]) -> None:
    real = Partition._passed
    monkeypatch.setattr(Partition, "_passed", lambda self, event, now: real(self, change(event), now))


# Life


def deadline_ignored(patch: pytest.MonkeyPatch) -> None:
    """A kept message never expires."""
    patch.setattr(Leases, "due", lambda self, now: [])


def return_stays_shut(patch: pytest.MonkeyPatch) -> None:
    """A partition that came back begins nothing."""
    real = Partition.handle

    def handle(self: Partition, event: Event, now: float) -> Sequence[Effect]:
        return () if isinstance(event, Returned) else real(self, event, now)

    patch.setattr(Partition, "handle", handle)


def pause_without_resume(patch: pytest.MonkeyPatch) -> None:
    """A paused partition stays paused."""
    patch.setattr(MemoryReader, "resume", lambda self, partitions: None)


def crossing_ack_lost(patch: pytest.MonkeyPatch) -> None:
    """A callback that returns doesn't look whether another thread has acked meanwhile."""

    def left(self: LeaseRunner, message: object) -> LeaseReport:
        self.detached = True
        if message._state == 2 or self.withdrawn:  # type: ignore[attr-defined]
            return LeaseReport(self.lease, self.done, LeaseOutcome.NACKED, self._delay)
        return LeaseReport(self.lease, self.done, LeaseOutcome.KEPT)

    patch.setattr(LeaseRunner, "left", left)
    patch.setattr(LeaseRunner, "acked_later", lambda self, message: None)


def withdrawal_unreported(patch: pytest.MonkeyPatch) -> None:
    """Holders don't hear that their lease is over."""
    real = Coordinator._carry_out

    def carry_out(self: Coordinator, number: PartitionId, given: Sequence[Effect], now: float) -> None:
        real(self, number, [effect for effect in given if not isinstance(effect, Withdraw)], now)

    patch.setattr(Coordinator, "_carry_out", carry_out)


def stored_map_ignored(patch: pytest.MonkeyPatch) -> None:
    """A new owner doesn't read the map beside the position."""
    real = OwnedPartitions._start

    def start(self: OwnedPartitions, number: PartitionId, stored: CommitBoth, begin: object) -> int:
        return real(self, number, stored, begin._replace(known=()))  # type: ignore[attr-defined]

    patch.setattr(OwnedPartitions, "_start", start)


MUTATIONS: Mapping[str, Mutation] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__annotations__", {}).get("patch") == "pytest.MonkeyPatch"
}
