"""Who holds which records, until when, and which verdicts still count.

Theory. A lease is one key's run of records, handed to one lease runner that takes them in order. Only its current
record - the first unfinished one - has a deadline: its clock starts when its callback does, not when the record
was buffered. When a lease runner lets go of a lease whose current record it neither acked nor nacked, the lease is
*kept*: that one record, with the user, until its deadline.

States: WALKING (a lease runner is on its way), KEPT (with the user, no callback runs), EXPIRED (its deadline has passed
while its callback still runs: no other lease runner gets the key until the callback has ended).
Legal: WALKING -> KEPT | EXPIRED | over;  KEPT -> over;  EXPIRED -> over.  A lease that is over never comes back.

Rules
1. A verdict counts only while its lease is in `active` (I4): identity is the fence, so epoch and attempt of an
   older delivery can't be mistaken for those of a newer one.
2. Deadlines sit in a heap that may hold outdated entries. A deadline that moves on, as it does with every record that
   a lease runner begins, leaves its entry where it is: too early, and put right when its time has come. When entries
   outnumber the active leases they are swept, or else each would keep its lease's records until it is due.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from kafka_pubsub.core.records import Record
from kafka_pubsub.core.retry.key_line import Entry
from kafka_pubsub.core.retry.record import RetryRecord
from kafka_pubsub.errors import InvariantViolated

__all__ = ["Lease", "LeaseState", "Leases", "Settlement", "attempt_of", "entry_of"]


#: Outdated deadlines that aren't worth a sweep.
_FEW = 64


class LeaseState(IntEnum):
    """Where a lease stands; see the head of this file."""

    WALKING = 0
    KEPT = 1
    EXPIRED = 2
    OVER = 3


class Settlement(NamedTuple):
    """The fate of the lease's record number `done`: acked, or nacked (`delay` None: by the backoff).

    It may overtake the release that says its callback has ended.
    """

    lease: Lease
    done: int
    acked: bool
    delay: float | None = None
    #: What was being dealt with when it was nacked, "Class: text".
    error: str = ""


class Lease:
    """One key's run of records with one lease runner. The shell reads it; only the core writes it."""

    __slots__ = (
        "attempt",
        "deadline",
        "done",
        "early",
        "entries",
        "entry",
        "epoch",
        "extended",
        "holder",
        "key",
        "keys",
        "partition",
        "records",
        "state",
    )

    def __init__(
        self, partition: int, epoch: int, key: bytes | None, records: Sequence[Record], attempt: int
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        #: None: no order, or inline (`inline_lease`): nothing is blocked.
        self.key = key
        #: The keys that an inline lease of what was due holds; None in it: records without an order. Else empty.
        self.keys: Sequence[bytes | None] = ()
        self.records = records
        #: Which delivery of the first record this is; its followers have never been delivered.
        self.attempt = attempt
        #: How many records from the front are finished.
        self.done = 0
        self.state = LeaseState.WALKING
        #: When the current record's lease ends; None while its callback hasn't been seen running.
        self.deadline: float | None = None
        #: The earliest entry in the heap of deadlines that is this lease's; None: there is none.
        self.entry: float | None = None
        #: The deadline that the user asked for, if any: it holds for the current record only.
        self.extended: float | None = None
        #: A settlement of the current record that overtook its callback's release.
        self.early: Settlement | None = None
        #: Where its records wait in the retry partition, if they came from there (`key_line.Entry`); else None.
        self.entries: Sequence[Entry] | None = None
        #: The shell's own note; the core never looks at it.
        self.holder: object = None

    def __repr__(self) -> str:
        return (
            f"<Lease {self.partition}:{self.records[0].offset()} key={self.key!r} {self.state.name} "
            f"{self.done}/{len(self.records)} attempt={self.attempt}>"
        )


class Leases:
    """All leases of one partition."""

    def __init__(self) -> None:
        #: Leases that aren't over. Empty: nothing is held.
        self.active: set[Lease] = set()
        #: The inline lease that is open; None: there is none.
        self.walk: Lease | None = None
        #: Records handed over and not finished.
        self.handed = 0
        self._deadlines: list[tuple[float, int, Lease]] = []
        self._entries = 0

    def open(self, lease: Lease) -> None:
        """Records have been handed over."""
        self.active.add(lease)
        self.handed += len(lease.records)

    def open_walk(self, lease: Lease) -> None:
        """Records of many keys have been handed over, to be taken inline."""
        self.walk = lease
        self.open(lease)

    def end_walk(self, lease: Lease, reached: int) -> None:
        """The inline lease is over; its first `reached` records are finished, or have leases of their own."""
        self.close(lease)
        self.walk, lease.done = None, reached

    def advance(self, lease: Lease, done: int) -> Sequence[Record]:
        """`done` records are finished now; returns those that weren't before."""
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
        """The current record's lease ends then."""
        lease.deadline = deadline
        if lease.entry is None or deadline < lease.entry:
            self._enter(lease, deadline)
            self._sweep()

    def _enter(self, lease: Lease, deadline: float) -> None:
        lease.entry = deadline
        self._entries += 1
        heapq.heappush(self._deadlines, (deadline, self._entries, lease))

    def _sweep(self) -> None:
        """Forgets outdated deadlines where there are many (rule 2)."""
        if len(self._deadlines) > _FEW + 2 * len(self.active):
            entries = {e[2]: e for e in self._deadlines if e[2].deadline is not None and e[2].entry == e[0]}
            for _, _, lease in self._deadlines:
                if lease not in entries:
                    lease.entry = None
            self._deadlines = list(entries.values())
            heapq.heapify(self._deadlines)

    def keep(self, lease: Lease, deadline: float) -> Sequence[Record]:
        """The callback has ended without a word; returns the records behind the current one."""
        rest = lease.records[lease.done + 1 :]
        lease.records = lease.records[: lease.done + 1]
        self.handed -= len(rest)
        lease.state = LeaseState.KEPT
        self.set_deadline(lease, deadline)
        return rest

    def narrow(self, lease: Lease, record: Record, key: bytes | None) -> None:
        """Of an inline lease only `record` goes on, as its key's own."""
        self.walk = None
        self.handed -= len(lease.records) - 1
        lease.records, lease.key, lease.keys = [record], key, ()
        if isinstance(record, RetryRecord):
            lease.entries, lease.attempt = [entry_of(record)], attempt_of(record)

    def close(self, lease: Lease) -> Sequence[Record]:
        """The lease is over; returns its unfinished records."""
        rest = lease.records[lease.done :]
        self.active.discard(lease)
        self.handed -= len(rest)
        lease.state = LeaseState.OVER
        lease.deadline = None
        self._sweep()
        return rest

    def close_whole(self, leases: Sequence[Lease]) -> Sequence[Record]:
        """Leases whose every record was acked are over; returns those that weren't finished before."""
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
        """When a lease may expire; perhaps too early (rule 2), never too late."""
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, now: float) -> list[Lease]:
        """Leases whose deadline has come; they lose it and are the caller's to deal with."""
        due: list[Lease] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, lease = heapq.heappop(self._deadlines)
            if lease.entry != deadline:  # another one, which is earlier, speaks for it
                continue
            lease.entry = None
            if lease.deadline is None or lease.state not in (LeaseState.WALKING, LeaseState.KEPT):
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


def attempt_of(record: Record) -> int:
    """Which delivery of the record the next one is."""
    return record.info.attempt + record.info.crashes if isinstance(record, RetryRecord) else 1


def entry_of(record: RetryRecord) -> Entry:
    """The place where a record waited that is due."""
    info = record.info
    return Entry(info.origin, record.retry_offset, 0.0, info.attempt, info.crashes, info.why)
