"""The reports of lease runners about their leases, and their meaning for the records: where they came from, and go.

Theory. A lease runner acks its records in turn and lets go of its lease in the end, or keeps a record until its
deadline. Each report either finishes records, gives back records that no callback has seen, or says that the current
record failed.

Rules
1. An acked message is marked as finished in the offsets of its log.
2. A message that no callback has begun goes back to its place, in front of the messages that wait there.
3. A failed message moves to the retry partition.
4. A message that was nacked inline moves at once: its lease would be opened only to be closed. If the message is new,
   no message of its key is parked, and the key waits for this message only, so its standing needs no look.
5. A report about a lease that is over changes nothing, and is counted as stale (I4).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats.record import RetryRecord, Why
from kafka_pubsub.subscribe.partition.commits import Commits
from kafka_pubsub.subscribe.partition.effects import Effect, Stale, Withdraw
from kafka_pubsub.subscribe.partition.events import (
    Extended,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    Nacked,
    Progressed,
    ReadUpTo,
    Settled,
)
from kafka_pubsub.subscribe.partition.key_line import Entry
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.leases import Lease, Leases, LeaseState, Settlement
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition
from kafka_pubsub.subscribe.partition.settings import Rules

__all__ = ["LeaseReports", "RecordOutcomes"]


class RecordOutcomes:
    """The outcomes of a partition's leases, applied to its records."""

    def __init__(
        self,
        offsets: Offsets,
        queues: KeyQueues,
        leases: Leases,
        commits: Commits,
        retry_partition: RetryPartition,
    ) -> None:
        self._offsets = offsets
        self._queues = queues
        self._leases = leases
        self._commits = commits
        self._retry_partition = retry_partition
        self._retries = retry_partition.retries
        #: The number of records finished so far.
        self.finished = 0
        #: The time of the event that is being handled.
        self.now = 0.0

    def line_up(self, records: Sequence[Record], after: Collection[int] = ()) -> None:
        """Queues records of home behind those that wait already; `after`: those that may wait for other lanes."""
        retries = self._retries
        held = retries.followers.take(records, after, self.now)
        for key in held:
            if not self._queues.queues.get(key):
                retries.park(key)
        self._queues.add(records)
        if retries.parking.lines:
            retries.home_came(records, self.now)
        retries.settle_all(held, self.now)

    def hold_next(self, key: bytes | None) -> None:
        """Parks a key that has a lease if its next message may wait for another lane."""
        retries = self._retries
        if key is not None and retries.followers.read:
            queue = self._queues.queues.get(key)
            if queue and queue[0].offset() in retries.followers.read:
                retries.park(key)
                retries.settle(key, self.now)

    def read_up_to(self, event: ReadUpTo, now: float) -> Sequence[Effect]:
        """Finishes holes at the end of a log: each would look like a waiting message until a record follows."""
        before = self._offsets.committable
        self._offsets.advance(event.position, event.epoch)
        self._retry_partition.read_up_to(event.retry, event.retry_epoch)
        self.line_up(())  # a parked message may have waited for home to be read past its origin
        if self._offsets.committable != before:
            self._commits.dirty = True
        return ()

    def end_fresh(
        self, acked: Sequence[Record], nacked: Sequence[Nacked], rest: Sequence[Record], *, queued: bool
    ) -> None:
        """Ends an inline lease of new records, or of `queued` ones; `rest` has to queue."""
        if acked:
            self.book(acked)
            self._retries.followers.leave([record.key() for record in acked])
        self._fail_all(nacked)  # before anything queues behind it
        if queued:
            self._queues.put_back(None, rest)
        else:
            self.line_up(rest)

    def end_due(
        self,
        keys: Sequence[bytes | None],
        kept: Container[bytes | None],
        acked: Sequence[Record],
        nacked: Sequence[Nacked],
        rest: Sequence[Record],
    ) -> None:
        """Ends an inline lease of due messages that held `keys`; the `kept` keys stay with a lease runner."""
        retried = [record for record in acked if isinstance(record, RetryRecord)]
        self._book_retried(retried)
        if len(retried) < len(acked):
            self.book([record for record in acked if not isinstance(record, RetryRecord)])
        for record in reversed(rest):
            self._put_back(record)
        self._fail_all(nacked)
        free = [key for key in keys if key not in kept]
        self._retries.parking.acked(free, self.now)
        self.free_keys(free)

    def _put_back(self, record: Record) -> None:
        """Returns a record that no callback has begun to the front of the place where it waited."""
        key = self._retries.key(record)
        if isinstance(record, RetryRecord):
            self._retry_partition.lending.put_back(record, Entry.of(record), key)
        else:
            self._queues.put_back(key, [record])

    def _fail_all(self, nacked: Sequence[Nacked]) -> None:
        retries = self._retries
        for record, delay, error in nacked:
            retries.fail(record, retries.key(record), Why.NACKED, delay, error, self.now)

    def finish(self, lease: Lease, records: Sequence[Record]) -> None:
        """Finishes these acked records of the lease."""
        if lease.entries is None:
            self.book(records)
        else:
            self._book_retried(records)

    def finish_whole(self, leases: Sequence[Lease]) -> None:
        """Finishes leases whose every record was acked, all at once: the hot path."""
        retried = [lease for lease in leases if lease.entries is not None]
        if retried:
            self._book_retried(self._leases.close_whole(retried))
            home = [lease for lease in leases if lease.entries is None]
            self.book(self._leases.close_whole(home))
        else:
            self.book(self._leases.close_whole(leases))
        keys = [lease.key for lease in leases]
        if (parking := self._retries.parking).backlogged:
            parking.acked(keys, self.now)
        self.free_keys(keys, leases)

    def give_back(self, lease: Lease, records: Sequence[Record]) -> None:
        """Returns records that were never begun to where they waited."""
        if lease.entries is None:
            self._queues.put_back(lease.key, records)
            if lease.key is not None and records:
                self._retries.settle(lease.key, self.now)  # it may be parked, and has a backlog again
        else:
            self._retry_partition.lending.give_back(lease, records)

    def free(self, lease: Lease) -> None:
        """Unblocks the key, and the moves, that waited for this lease or its callback to end."""
        self.free_keys([lease.key], [lease])

    def free_keys(self, keys: Sequence[bytes | None], leases: Sequence[Lease] = ()) -> None:
        """Frees keys that no lease holds any more; `leases` are the leases that held them."""
        self._queues.unblock_all(keys)
        self._retry_partition.over(leases)
        self._retry_partition.freed(keys, self.now)
        self._retries.followers.leave(keys)

    def fail(self, lease: Lease, why: Why, delay: float | None, error: str, now: float) -> None:
        """Moves the current record, which failed; the records behind it go back."""
        record, *rest = self._leases.close(lease)
        if rest:
            self.give_back(lease, rest)
        self._retries.fail(record, lease.key, why, delay, error, now)
        self.free(lease)

    def book(self, news: Sequence[Record]) -> None:
        """Marks these acked records of home as finished."""
        self._offsets.finish(news)
        self._count(news)
        suspects = self._retries.home.suspects
        if suspects.duty:
            suspects.finished([record.offset() for record in news])

    def _book_retried(self, news: Sequence[Record]) -> None:
        self._retry_partition.lending.finish(news)
        self._count(news)

    def _count(self, news: Sequence[Record]) -> None:
        self.finished += len(news)
        self._commits.dirty = True
        self._retries.outage.acked(len(news))


class LeaseReports:
    """The reports on the leases of a partition, and their application."""

    def __init__(self, leases: Leases, rules: Rules, epoch: int, outcomes: RecordOutcomes) -> None:
        self._leases = leases
        self._rules = rules
        self.epoch = epoch
        self._outcomes = outcomes

    def over(self, lease: Lease) -> bool:
        """Returns whether reports on the lease are stale."""
        return lease.state is LeaseState.OVER or lease.epoch != self.epoch

    def released(self, event: LeasesReported, now: float) -> Sequence[Effect]:
        """Takes the reports of lease runners that let go of their leases."""
        stale = 0
        whole: list[Lease] = []
        for release in event.releases:
            lease = release.lease
            if self.over(lease):
                stale += max(0, release.done - lease.done)  # letting go of the lease isn't stale itself
            elif release.outcome is LeaseOutcome.FINISHED and lease.state is LeaseState.RUNNING:
                whole.append(lease)
            else:
                self.release(release, now)
        if whole:
            self._outcomes.finish_whole(whole)
        return (Stale(stale),) if stale else ()

    def release(self, release: LeaseReport, now: float) -> None:
        """Takes the report of a lease runner that lets go of its lease."""
        lease, outcome, outcomes = release.lease, release.outcome, self._outcomes
        self._finish(lease, release.done)
        if lease.done == len(lease.records):
            self._leases.close(lease)
            outcomes.free(lease)
        elif outcome is LeaseOutcome.UNTOUCHED or release.done < lease.done:
            # Expired or not, no callback has seen this record: the report was about a record that has been acked
            # meanwhile.
            outcomes.give_back(lease, self._leases.close(lease))
            outcomes.free(lease)
        elif lease.state is LeaseState.EXPIRED:
            outcomes.fail(lease, Why.EXPIRED, None, release.error, now)
        elif outcome is LeaseOutcome.KEPT:
            outcomes.give_back(lease, self._leases.keep(lease, self._kept_until(lease, now)))
            if lease.early is not None and lease.early.done == lease.done:
                self._settle(lease.early, now)
        else:
            outcomes.fail(lease, Why.NACKED, release.delay, release.error, now)

    def _kept_until(self, lease: Lease, now: float) -> float:
        return now + self._rules.ack_deadline if lease.extended is None else lease.extended

    def progressed(self, event: Progressed, now: float) -> Sequence[Effect]:
        """Takes the progress of lease runners."""
        allowed = max(self._rules.ack_deadline, self._rules.max_extension)
        for lease, done, started in event.steps:
            if lease.state is not LeaseState.RUNNING or lease.epoch != self.epoch:
                continue
            if done > lease.done:
                self._finish(lease, done)
            if lease.extended is None and lease.done == done < len(lease.records):
                self._leases.set_deadline(lease, started + allowed)
        return ()

    def settled(self, event: Settled, now: float) -> Sequence[Effect]:
        """Takes acks and nacks from outside of callbacks."""
        stale = 0
        over: list[Lease] = []
        for settlement in event.settlements:
            lease = settlement.lease
            if lease.state is LeaseState.RUNNING and settlement.done >= lease.done:
                lease.early = settlement
            elif lease.state is LeaseState.KEPT and settlement.done == lease.done:
                self._settle(settlement, now)
                over.append(lease)
            elif settlement.done >= lease.done:  # else the same ack was reported before
                stale += 1
        effects: list[Effect] = [Withdraw(over)] if over else []
        return [*effects, Stale(stale)] if stale else effects

    def acked(self, lease: Lease, record: Record) -> bool:
        """Finishes a record acked in a callback that may still run; returns False if the ack comes too late.

        Also returns True if the record was finished under this lease before.
        """
        offset = record.offset()
        if lease.state is not LeaseState.OVER and offset < lease.records[0].offset():
            return True  # the report belongs to the inline run from which the lease was narrowed
        at = next((at for at, each in enumerate(lease.records) if each.offset() == offset), None)
        if at is None or (at >= lease.done and self.over(lease)):
            return False
        self._finish(lease, max(lease.done, at + 1))
        if lease.state is LeaseState.KEPT:
            self._leases.close(lease)
            self._outcomes.free(lease)
        return True

    def _settle(self, settlement: Settlement, now: float) -> None:
        lease = settlement.lease
        if settlement.acked:
            self._finish(lease, lease.done + 1)
            self._leases.close(lease)
            self._outcomes.free(lease)
        else:
            self._outcomes.fail(lease, Why.NACKED, settlement.delay, settlement.error, now)

    def extended(self, event: Extended, now: float) -> Sequence[Effect]:
        """Moves the deadline of a lease."""
        lease = event.lease
        if lease.state not in (LeaseState.RUNNING, LeaseState.KEPT) or lease.epoch != self.epoch:
            return (Stale(1),)
        if event.done < lease.done:
            return (Stale(1),)
        self._finish(lease, event.done)
        lease.extended = now + event.seconds
        self._leases.set_deadline(lease, lease.extended)
        return ()

    def expire(self, now: float) -> Sequence[Effect]:
        """Ends or expires the leases whose deadlines have passed."""
        expired = self._leases.due(now)
        for lease in expired:
            if lease.state is LeaseState.KEPT:
                self._outcomes.fail(lease, Why.EXPIRED, None, "", now)
            else:
                lease.state = LeaseState.EXPIRED
        return (Withdraw(expired),) if expired else ()

    def _finish(self, lease: Lease, done: int) -> None:
        news = self._leases.advance(lease, done)
        if news:
            self._outcomes.finish(lease, news)
