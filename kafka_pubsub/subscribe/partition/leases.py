"""Which lease runner holds which records, until when, and which reports still count.

Theory. A lease is a run of a key's records, handed to a lease runner that takes them in order. Only its current
record, the first unfinished record, has a deadline: its time starts when its callback does, not when the record was
buffered. When a lease runner lets go of a lease whose current record was neither acked nor nacked, the lease is
*kept*: that record stays with the user until its deadline.

States: RUNNING (a lease runner is taking the records), KEPT (the user has the record, no callback runs), EXPIRED (the
deadline has passed while the callback still runs: no other lease runner gets the key until the callback has ended).
Legal: RUNNING -> KEPT | EXPIRED | over;  KEPT -> over;  EXPIRED -> over.  A lease that is over never comes back.

Rules
1. A report counts only while its lease is in `active` (I4). The lease object itself is the fence, so epoch and attempt
   of an older delivery can't be mistaken for epoch and attempt of a newer delivery.
2. Deadlines lie in a heap that may hold outdated entries. A deadline that moves on, as with every record that
   a lease runner begins, leaves its entry in its place; the entry comes too early and is corrected when its time has
   come. When entries outnumber the active leases they are swept: each would keep its lease's records until its time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.log.records import Record
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.formats.record import RetryRecord, attempt_of
from kafka_pubsub.subscribe.partition.key_line import Entry

__all__ = ["Lease", "LeaseState", "Leases", "Settlement"]


#: So few outdated deadlines aren't worth a sweep.
_FEW = 64


class LeaseState(IntEnum):
    """The state of a lease; see the head of this file."""

    RUNNING = 0
    KEPT = 1
    EXPIRED = 2
    OVER = 3


class Settlement(NamedTuple):
    """An ack or a nack of the lease's record number `done` (`delay` None: by the backoff).

    May arrive before the report that its callback has ended.
    """

    lease: Lease
    done: int
    acked: bool
    delay: float | None = None
    #: The error that was being handled at the nack, as "Class: text".
    error: str = ""


class Lease:
    """A run of a key's records with a lease runner. The client reads it; only the core writes it."""

    __slots__ = (
        "attempt",
        "deadline",
        "done",
        "early",
        "entries",
        "entry",
        "epoch",
        "extended",
        "key",
        "keys",
        "lease_runner",
        "partition",
        "queued",
        "records",
        "state",
    )

    def __init__(
        self, partition: PartitionId, epoch: int, key: bytes | None, records: Sequence[Record], attempt: int
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        #: None: the records have no order, or the lease is inline (`inline_lease`) and blocks nothing.
        self.key = key
        #: The keys that an inline lease of due messages holds; None among them stands for records without an order.
        #: Empty for other leases.
        self.keys: Sequence[bytes | None] = ()
        #: Whether an inline lease has records that had queued, where they belong again if the lease doesn't reach them.
        self.queued = False
        self.records = records
        #: The number of this delivery of the first record; the records behind it have never been delivered.
        self.attempt = attempt
        #: The number of records, from the front, that are finished.
        self.done = 0
        self.state = LeaseState.RUNNING
        #: When the current record's lease ends; None while its callback hasn't been seen running.
        self.deadline: float | None = None
        #: This lease's earliest entry in the heap of deadlines; None: there is none.
        self.entry: float | None = None
        #: The deadline that the user asked for, if any, of the current record only.
        self.extended: float | None = None
        #: A settlement of the current record that arrived before its callback's report.
        self.early: Settlement | None = None
        #: Where its records wait in the retry partition, if they came from there (`key_line.Entry`); else None.
        self.entries: Sequence[Entry] | None = None
        #: A note of the client; the core never reads it.
        self.lease_runner: object = None

    def of_one(self, record: Record, key: bytes | None) -> Lease:
        """Returns a lease of a single record of this inline lease, under the record's own key."""
        lease = Lease(self.partition, self.epoch, key, [record], attempt_of(record))
        lease.entries = [Entry.of(record)] if isinstance(record, RetryRecord) else None
        return lease

    def __repr__(self) -> str:
        return (
            f"<Lease {self.partition}:{self.records[0].offset()} key={self.key!r} {self.state.name} "
            f"{self.done}/{len(self.records)} attempt={self.attempt}>"
        )


class Leases:
    """All leases of a partition."""

    def __init__(self) -> None:
        #: Leases that aren't over.
        self.active: set[Lease] = set()
        #: The inline lease that is open, or None.
        self.inline_lease: Lease | None = None
        #: The number of records that were handed over and aren't finished.
        self.handed = 0
        self._deadlines: list[tuple[float, int, Lease]] = []
        self._entries = 0

    def open(self, lease: Lease) -> None:
        """Adds a lease whose records have been handed over."""
        self.active.add(lease)
        self.handed += len(lease.records)

    def open_inline(
        self,
        partition: PartitionId,
        epoch: int,
        records: Sequence[Record],
        keys: Sequence[bytes | None] = (),
        *,
        queued: bool = False,
    ) -> Lease:
        """Adds an inline lease, whose records have many keys."""
        lease = self.inline_lease = Lease(partition, epoch, None, records, 1)
        lease.keys, lease.queued = keys, queued
        self.open(lease)
        return lease

    def end_inline_lease(self, lease: Lease, reached: int) -> None:
        """Ends the inline lease; its first `reached` records are finished, or have leases of their own."""
        self.close(lease)
        self.inline_lease, lease.done = None, reached

    def advance(self, lease: Lease, done: int) -> Sequence[Record]:
        """Marks the first `done` records as finished; returns the records that weren't finished before."""
        news = (
            lease.records
            if done == len(lease.records) and not lease.done
            else lease.records[lease.done : done]
        )
        if news:
            lease.done = done
            lease.deadline = lease.extended = None
            self.handed -= len(news)
        return news

    def set_deadline(self, lease: Lease, deadline: float) -> None:
        """Sets the time at which the current record's lease ends."""
        lease.deadline = deadline
        if lease.entry is None or deadline < lease.entry:
            self._enter(lease, deadline)
            self._sweep()

    def _enter(self, lease: Lease, deadline: float) -> None:
        lease.entry = deadline
        self._entries += 1
        heapq.heappush(self._deadlines, (deadline, self._entries, lease))

    def _sweep(self) -> None:
        """Removes outdated deadlines where there are many (rule 2)."""
        if len(self._deadlines) > _FEW + 2 * len(self.active):
            entries = {e[2]: e for e in self._deadlines if e[2].deadline is not None and e[2].entry == e[0]}
            for _, _, lease in self._deadlines:
                if lease not in entries:
                    lease.entry = None
            self._deadlines = list(entries.values())
            heapq.heapify(self._deadlines)

    def keep(self, lease: Lease, deadline: float) -> Sequence[Record]:
        """Keeps the current record, whose callback neither acked nor nacked; returns the records behind it."""
        rest = lease.records[lease.done + 1 :]
        lease.records = lease.records[: lease.done + 1]
        self.handed -= len(rest)
        lease.state = LeaseState.KEPT
        self.set_deadline(lease, deadline)
        return rest

    def narrow(self, lease: Lease, record: Record, key: bytes | None) -> None:
        """Turns an inline lease into a lease of `record` alone, under the record's own key."""
        self.inline_lease = None
        self.handed -= len(lease.records) - 1
        lease.records, lease.key, lease.keys = [record], key, ()
        if isinstance(record, RetryRecord):
            lease.entries, lease.attempt = [Entry.of(record)], attempt_of(record)

    def close(self, lease: Lease) -> Sequence[Record]:
        """Ends the lease; returns its unfinished records."""
        rest = lease.records[lease.done :]
        self.active.discard(lease)
        self.handed -= len(rest)
        lease.state = LeaseState.OVER
        lease.deadline = None
        self._sweep()
        return rest

    def close_whole(self, leases: Sequence[Lease]) -> Sequence[Record]:
        """Ends leases whose every record was acked; returns the records that weren't finished before."""
        news: list[Record] = []
        for lease in leases:
            news += lease.records[lease.done :] if lease.done else lease.records
            lease.done = len(lease.records)
            lease.state = LeaseState.OVER
            lease.deadline = None
        self.active.difference_update(leases)
        self.handed -= len(news)
        self._sweep()
        return news

    def next_deadline(self) -> float | None:
        """Returns when a lease may expire; perhaps too early (rule 2), never too late."""
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, now: float) -> list[Lease]:
        """Returns the leases whose deadline has passed; they lose the deadline, and the caller deals with them."""
        due: list[Lease] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, lease = heapq.heappop(self._deadlines)
            if lease.entry != deadline:  # the lease has an earlier entry, which counts instead
                continue
            lease.entry = None
            if lease.deadline is None or lease.state not in (LeaseState.RUNNING, LeaseState.KEPT):
                continue
            if lease.deadline > now:
                self._enter(lease, lease.deadline)
            else:
                lease.deadline = None
                due.append(lease)
        return due

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        keys = [lease.key for lease in self.active if lease.key is not None]
        if len(keys) != len(set(keys)):
            raise InvariantViolated("two leases hold the same key")
        if any(lease.state is LeaseState.OVER for lease in self.active):
            raise InvariantViolated("a lease that is over is still active")
        if len(self._deadlines) > _FEW + 2 * len(self.active):
            raise InvariantViolated(f"{len(self._deadlines)} deadlines of {len(self.active)} leases")
        handed = sum(len(lease.records) - lease.done for lease in self.active)
        if handed != self.handed:
            raise InvariantViolated(f"{self.handed} records booked as handed over, {handed} counted")
        for lease in self.active:
            if lease.state is LeaseState.KEPT and (
                lease.deadline is None or len(lease.records) != lease.done + 1
            ):
                raise InvariantViolated(f"{lease!r} is kept without a deadline or with followers")
