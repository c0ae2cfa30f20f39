"""I4 in the leases: every legal way through a lease's life, against books kept by hand.

The machine does to leases everything that `partition.py` may do, and nothing else; the model knows for each lease how
many of its records are finished, where it stands and when it ends. The illegal ways (a lease that is over doing
anything) are the caller's to avoid, by asking for `active` or the state: that both tell the truth is checked at each
step.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.leases import Lease, Leases, LeaseState
from tests.partition_ids import P
from tests.support import FakeBody


@dataclass
class Book:
    """The model's knowledge of a lease."""

    first: int
    length: int
    done: int = 0
    state: LeaseState = LeaseState.RUNNING
    deadline: float | None = None

    def offsets(self) -> list[int]:
        return list(range(self.first + self.done, self.first + self.length))


def lease_of(first: int, length: int, key: bytes | None = None) -> Lease:
    return Lease(P[0], 1, key, [FakeBody(offset=first + at, key=key) for at in range(length)], 1)


class LeasesMachine(RuleBasedStateMachine):
    """Opens, advances, keeps, extends, expires and closes."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.finished_runs: dict[Lease, Book] = {}
        self.now = 0.0
        self.next = 0

    def some(self, data: st.DataObject, *states: LeaseState) -> tuple[Lease, Book] | None:
        fits = [pair for pair in self.finished_runs.items() if pair[1].state in states]
        return data.draw(st.sampled_from(fits)) if fits else None

    @rule(length=st.integers(1, 5), keyed=st.booleans())
    def open(self, length: int, keyed: bool) -> None:
        lease = lease_of(self.next, length, b"%d" % self.next if keyed else None)
        self.finished_runs[lease] = Book(self.next, length)
        self.next += length
        self.leases.open(lease)

    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        if (found := self.some(data, *STANDING)) is None:
            return
        lease, book = found
        done = data.draw(st.integers(0, book.length))
        expected = list(range(book.first + book.done, book.first + done))
        assert [record.offset() for record in self.leases.advance(lease, done)] == expected
        if expected:
            book.done, book.deadline = done, None
        self.tidy(lease, book)

    def tidy(self, lease: Lease, book: Book) -> None:
        """The partition closes a lease at once when all of it is finished."""
        if book.done == book.length:
            assert not self.leases.close(lease)
            del self.finished_runs[lease]
            assert lease.state is LeaseState.OVER

    @rule(data=st.data(), seconds=st.sampled_from([0.0, 1.0, 30.0]))
    def set_deadline(self, data: st.DataObject, seconds: float) -> None:
        if found := self.some(data, LeaseState.RUNNING, LeaseState.KEPT):
            lease, book = found
            book.deadline = self.now + seconds
            self.leases.set_deadline(lease, book.deadline)

    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        if (found := self.some(data, LeaseState.RUNNING)) is None:
            return
        lease, book = found
        rest = [record.offset() for record in self.leases.keep(lease, self.now + 10)]
        assert rest == book.offsets()[1:]
        book.length, book.state, book.deadline = book.done + 1, LeaseState.KEPT, self.now + 10

    @rule(data=st.data())
    def narrow(self, data: st.DataObject) -> None:
        """Of an inline lease a single record goes on."""
        if (found := self.some(data, LeaseState.RUNNING)) is None:
            return
        lease, book = found
        if lease.key is None and not book.done:
            record = data.draw(st.sampled_from(list(lease.records)))
            self.leases.narrow(lease, record, b"%d" % record.offset())
            book.first, book.length = record.offset(), 1

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        if found := self.some(data, *STANDING):
            lease, book = found
            assert [record.offset() for record in self.leases.close(lease)] == book.offsets()
            del self.finished_runs[lease]
            assert lease.state is LeaseState.OVER

    @rule(data=st.data())
    def close_whole(self, data: st.DataObject) -> None:
        """Walks that ended with every record acked are booked together."""
        fits = [pair for pair in self.finished_runs.items() if pair[1].state is not LeaseState.KEPT]
        some = data.draw(st.lists(st.sampled_from(fits), unique_by=lambda pair: id(pair[0]))) if fits else []
        expected = [offset for _, book in some for offset in book.offsets()]
        news = self.leases.close_whole([lease for lease, _ in some])
        assert [record.offset() for record in news] == expected
        for lease, _ in some:
            assert lease.state is LeaseState.OVER
            del self.finished_runs[lease]

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 10.0, 40.0]))
    def wait(self, seconds: float) -> None:
        """Due leases are exactly the model's, each once: kept ones are over, walking ones expire."""
        self.now += seconds
        due = self.leases.due(self.now)
        expected = [
            lease
            for lease, book in self.finished_runs.items()
            if book.state is not LeaseState.EXPIRED
            and book.deadline is not None
            and book.deadline <= self.now
        ]
        assert sorted(due, key=id) == sorted(expected, key=id)
        for lease in due:
            book = self.finished_runs[lease]
            book.deadline = None
            if book.state is LeaseState.KEPT:
                self.leases.close(lease)
                del self.finished_runs[lease]
            else:
                lease.state = book.state = LeaseState.EXPIRED

    @precondition(lambda self: self.finished_runs)
    @rule(times=st.integers(1, 200))
    def seen_running(self, times: int) -> None:
        """A deadline that is moved at each look, as that of a running handler is."""
        lease = next(iter(self.finished_runs))
        if self.finished_runs[lease].state is LeaseState.RUNNING:
            for step in range(times):
                self.finished_runs[lease].deadline = self.now + 3600 + step
                self.leases.set_deadline(lease, self.now + 3600 + step)

    @invariant()
    def same_as_the_model(self) -> None:
        self.leases.check()
        assert self.leases.active == set(self.finished_runs)
        assert self.leases.handed == sum(len(book.offsets()) for book in self.finished_runs.values())
        for lease, book in self.finished_runs.items():
            assert (lease.done, lease.state, lease.deadline) == (book.done, book.state, book.deadline)
            assert [record.offset() for record in lease.records[lease.done :]] == book.offsets()
        deadlines = [book.deadline for book in self.finished_runs.values() if book.deadline is not None]
        wake = self.leases.next_deadline()
        if deadlines:
            assert wake is not None
            assert wake <= min(deadlines)


STANDING = (LeaseState.RUNNING, LeaseState.KEPT, LeaseState.EXPIRED)
TestLeases = LeasesMachine.TestCase


def test_a_lease_that_is_over_is_freed_long_before_its_old_deadlines() -> None:
    leases = Leases()
    old: list[weakref.ref[Record]] = []
    for first in range(1000):
        lease = lease_of(first, 1)
        leases.open(lease)
        leases.set_deadline(lease, 3600.0 + first)
        leases.close(lease)
        old.append(weakref.ref(lease.records[0]))
    del lease
    gc.collect()
    assert sum(each() is not None for each in old) < 100
    leases.check()


def test_a_deadline_that_was_moved_away_and_back_expires_once() -> None:
    leases, lease = Leases(), lease_of(0, 1)
    leases.open(lease)
    for deadline in (5.0, 9.0, 5.0):
        leases.set_deadline(lease, deadline)
    assert leases.due(5.0) == [lease]
    assert leases.due(9.0) == []


def broken_key() -> Leases:
    leases = Leases()
    leases.open(lease_of(0, 1, b"k"))
    leases.open(lease_of(1, 1, b"k"))
    return leases


def broken_over() -> Leases:
    leases, lease = Leases(), lease_of(0, 1)
    leases.open(lease)
    lease.state = LeaseState.OVER
    return leases


def broken_count() -> Leases:
    leases = Leases()
    leases.open(lease_of(0, 2))
    leases.handed = 1
    return leases


def broken_kept() -> Leases:
    leases, lease = Leases(), lease_of(0, 2)
    leases.open(lease)
    lease.state = LeaseState.KEPT
    return leases


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (broken_key(), "hold the same key"),
        (broken_over(), "still active"),
        (broken_count(), "1 records booked"),
        (broken_kept(), "without a deadline"),
    ],
)
def test_a_broken_rule_is_noticed(broken: Leases, words: str) -> None:
    with pytest.raises(InvariantViolated, match=words):
        broken.check()


@pytest.mark.parametrize("whole", [True, False])
def test_many_leases_that_end_together_are_freed(whole: bool) -> None:
    leases = Leases()
    many = [lease_of(first, 1) for first in range(1000)]
    for lease in many:
        leases.open(lease)
        leases.set_deadline(lease, 3600.0)
    old = [weakref.ref(lease.records[0]) for lease in many]
    if whole:
        leases.close_whole(many)
    else:
        for lease in many:
            leases.close(lease)
    many.clear()
    del lease
    gc.collect()
    assert sum(each() is not None for each in old) < 100
    leases.check()
