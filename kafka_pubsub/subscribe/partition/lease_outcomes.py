"""The meaning of a lease's outcome for its records: where they came from, and where they go.

Rules
1. An acked message is marked as finished in the offsets of its log.
2. A message that no callback has begun goes back to its place, in front of the messages that wait there.
3. A failed message moves to the retry partition.
4. A message that was nacked inline moves at once: its lease would be opened only to be closed. If the message is new,
   no message of its key is parked, and the key waits for this message only, so its standing needs no look.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats.record import RetryRecord, Why
from kafka_pubsub.subscribe.partition.commits import Commits
from kafka_pubsub.subscribe.partition.effects import Effect
from kafka_pubsub.subscribe.partition.events import Nacked, ReadUpTo
from kafka_pubsub.subscribe.partition.key_line import Entry
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.leases import Lease, Leases
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition

__all__ = ["RecordOutcomes"]


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
        #: The number of records finished so far.
        self.finished = 0
        #: The time of the event that is being handled.
        self.now = 0.0

    def line_up(self, records: Sequence[Record], after: Collection[int] = ()) -> None:
        """Queues records of home behind those that wait already; `after`: those that may wait for other lanes."""
        retries = self._retry_partition.retries
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
        retries = self._retry_partition.retries
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
            self._retry_partition.retries.followers.leave([record.key() for record in acked])
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
        self._retry_partition.retries.parking.acked(free, self.now)
        self.free_keys(free)

    def _put_back(self, record: Record) -> None:
        """Returns a record that no callback has begun to the front of the place where it waited."""
        key = self._retry_partition.retries.key(record)
        if isinstance(record, RetryRecord):
            self._retry_partition.lending.put_back(record, Entry.of(record), key)
        else:
            self._queues.put_back(key, [record])

    def _fail_all(self, nacked: Sequence[Nacked]) -> None:
        retries = self._retry_partition.retries
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
        if (parking := self._retry_partition.retries.parking).backlogged:
            parking.acked(keys, self.now)
        self.free_keys(keys, leases)

    def give_back(self, lease: Lease, records: Sequence[Record]) -> None:
        """Returns records that were never begun to where they waited."""
        if lease.entries is None:
            self._queues.put_back(lease.key, records)
            if lease.key is not None and records:
                self._retry_partition.retries.settle(
                    lease.key, self.now
                )  # the key may be parked, and has a backlog again
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
        self._retry_partition.retries.followers.leave(keys)

    def fail(self, lease: Lease, why: Why, delay: float | None, error: str, now: float) -> None:
        """Moves the current record, which failed; the records behind it go back."""
        record, *rest = self._leases.close(lease)
        if rest:
            self.give_back(lease, rest)
        self._retry_partition.retries.fail(record, lease.key, why, delay, error, now)
        self.free(lease)

    def book(self, news: Sequence[Record]) -> None:
        """Marks these acked records of home as finished."""
        self._offsets.finish(news)
        self._count(news)
        if self._retry_partition.retries.home.suspects.duty:
            self._retry_partition.retries.home.suspects.finished([record.offset() for record in news])

    def _book_retried(self, news: Sequence[Record]) -> None:
        self._retry_partition.lending.finish(news)
        self._count(news)

    def _count(self, news: Sequence[Record]) -> None:
        self.finished += len(news)
        self._commits.dirty = True
        self._retry_partition.retries.outage.acked(len(news))
