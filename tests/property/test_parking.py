"""Parked keys against a naive model: the smallest origin goes first, when it is due and main was read past it."""

from __future__ import annotations

import tracemalloc
from typing import NamedTuple
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_pubsub.core import parked
from kafka_pubsub.core.loose import Loose
from kafka_pubsub.core.parked import FEW, NEVER, Entry, Line, ticks
from kafka_pubsub.core.parking import Parking, Standing
from kafka_pubsub.core.retry_record import Why

KEYS = [b"a", b"b", b"c"]
DUES = st.sampled_from([0.0, 0.0, 0.5, 3.0, NEVER])

entries = st.builds(
    Entry,
    origin=st.integers(0, 40),
    offset=st.integers(0, 2**40),
    due=st.floats(0, 1e7, width=32) | st.just(NEVER),
    attempt=st.integers(1, 0xFFFF),
    crashes=st.integers(0, 255),
    why=st.sampled_from(Why),
)


#: What waits for others of its key only, which is almost everything.
followers = st.builds(
    Entry,
    origin=st.integers(0, 40),
    offset=st.integers(0, 2**40),
    due=st.just(-5.0),
    attempt=st.just(1),
    crashes=st.just(0),
    why=st.just(Why.BACKLOG),
)


def place(entry: Entry) -> tuple[int, int]:
    return entry.origin, entry.offset


@given(
    st.lists(st.tuples(entries | followers, st.integers(0, 3), st.booleans()), max_size=80),
    st.sampled_from([0, 2, FEW]),
)
def test_a_line_is_a_sorted_list(steps: list[tuple[Entry, int, bool]], few: int) -> None:
    with patch.object(parked, "FEW", few):
        compare(steps)


def compare(steps: list[tuple[Entry, int, bool]]) -> None:
    line, model = Line(), list[Entry]()
    for entry, pops, look in steps:
        if entry.offset not in {each.offset for each in model}:
            line.add(entry)
            model.append(entry)
        assert len(line) == len(model)
        if look:
            model.sort(key=place)
            for _ in range(min(pops, len(model))):
                assert line.peek() is not None
                line.pop()
                del model[0]
            found, front = line.peek(), line.front()
            assert (None if found is None else same(found)) == (same(model[0]) if model else None)
            assert (None if front is None else front[2]) == (ticks(model[0].due) if model else None)
            if len(model) > 2:
                middle = line.get(*place(model[1]))
                assert middle is not None
                line.remove(middle)
                del model[1]
            assert line.get(41, 0) is None
    model.sort(key=place)
    assert list(map(same, line)) == list(map(same, model))
    for got, put in zip(line, model, strict=True):
        assert got.due == put.due or -1e-7 < got.due - put.due < 2e-6


def same(entry: Entry) -> tuple[object, ...]:
    """Whatever isn't a time to a millionth of a second."""
    return (*place(entry), *entry[3:])


def test_what_waits_for_others_takes_sixteen_bytes_each() -> None:
    tracemalloc.start()
    try:
        line = Line()
        line.add(Entry(0, 0, 100.0, 2))
        for origin in range(1, 100_000):
            line.add(Entry(origin, origin, -5.0, why=Why.BACKLOG))
        line.pop()
        line.add(Entry(0, 1_000_000, 200.0, 3))
        assert tracemalloc.get_traced_memory()[0] < 20 * len(line)
    finally:
        tracemalloc.stop()


def test_what_comes_out_of_order_leaves_the_others_alone() -> None:
    line = Line()
    for number in range(10_000):
        line.add(Entry(number, number, -5.0, why=Why.BACKLOG))
    moved = [entry for number in range(100) if (entry := line.get(number, number))]
    for entry in moved:
        line.remove(entry)
    for entry in moved:  # to the tail of the retry topic, as when its map is full
        line.add(entry._replace(offset=entry.offset + 20_000))
    with patch.object(parked, "_entry", side_effect=AssertionError("looked at one of ten thousand")):
        assert line.front() is not None
    assert [entry.origin for entry in line] == list(range(10_000))


def test_what_is_given_back_before_anybody_looks_is_there_once() -> None:
    line = Line()
    waiting = [Entry(number, number, -5.0, why=Why.BACKLOG) for number in range(5)]
    for entry in waiting:
        line.add(entry)
    line.remove(waiting[2])
    line.remove(waiting[4])
    assert (len(line), line.get(2, 2), line.get(4, 4)) == (3, None, None)
    line.add(waiting[2])
    assert [entry.origin for entry in line] == [0, 1, 2, 3]
    line.remove(waiting[1])
    line.pop()
    assert [entry.origin for entry in line] == [2, 3]


def test_nobody_is_woken_for_what_is_gone() -> None:
    loose = Loose()
    waiting = [Entry(number, number, float(number)) for number in range(1, 5)]
    for entry in waiting:
        loose.add(entry)
    for entry in waiting[:3]:
        assert loose.remove(entry)
    assert loose.next_due() == 4.0


def test_many_out_of_order_are_sorted_at_once() -> None:
    line = Line()
    for origin in [500, *range(1000, 1500), *range(501, 1000), *range(300, 500)]:
        line.add(Entry(origin, 5000 - origin))
    assert [entry.origin for entry in line] == list(range(300, 1500))


class LooseMachine(RuleBasedStateMachine):
    """Messages without a key against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.loose = Loose()
        self.model: list[Entry] = []
        self.now = 0.0
        self.next = 0

    @rule(wait=DUES)
    def add(self, wait: float) -> None:
        entry = Entry(self.next, self.next + 7, self.now + wait)
        self.next += 1
        self.loose.add(entry)
        self.model.append(entry)

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.take_due()

    def take_due(self) -> None:
        come = {place(entry) for entry in self.loose.due(self.now, 10**6)}
        assert come == {place(entry) for entry in self.model if entry.due <= self.now + 1e-7}
        self.model = [entry for entry in self.model if place(entry) not in come]

    @precondition(lambda self: any(entry.due != NEVER for entry in self.model))
    @rule()
    def sleep_until_woken(self) -> None:
        for _ in range(3):  # the first time may be a second too early
            wake = self.loose.next_due()
            before = len(self.model)
            assert wake is not None
            self.now = max(self.now, wake)
            self.take_due()
            if len(self.model) < before:
                return
        raise AssertionError("woken without end")

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.model))
        assert self.loose.remove(entry)
        assert not self.loose.remove(entry)
        self.model.remove(entry)

    @invariant()
    def same_as_the_model(self) -> None:
        assert len(self.loose) == len(self.model)
        assert sorted(map(place, self.loose)) == sorted(map(place, self.model))


TestLoose = LooseMachine.TestCase
TestLoose.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class Parked(NamedTuple):
    key: bytes
    entry: Entry


class ParkingMachine(RuleBasedStateMachine):
    """Messages of three keys wait in main, in the retry partition, or move between them."""

    @initialize()
    def begin(self) -> None:
        self.parking = Parking()
        self.now = 0.0
        self.position = 0
        self.next = 0
        self.retry_next = 0
        self.main: dict[bytes, list[int]] = {key: [] for key in KEYS}
        self.parked: list[Parked] = []
        self.moving: dict[bytes, set[int]] = {key: set() for key in KEYS}
        self.held: set[bytes] = set()
        self.standing: dict[bytes, Standing] = {}

    def settle(self, key: bytes) -> None:
        if key in self.held or key not in self.parking.lines:
            return
        main = self.main[key][0] if self.main[key] else None
        self.standing[key] = self.parking.settle(key, main, self.position, self.now)
        assert self.standing[key] is self.expected(key)
        if self.standing[key] is Standing.NEXT:
            self.parking.ready(key)

    def expected(self, key: bytes) -> Standing:
        """By looking at everything."""
        parked = sorted((p.entry for p in self.parked if p.key == key), key=place)
        first = min(
            [e.origin for e in parked[:1]] + self.main[key][:1] + list(self.moving[key]), default=None
        )
        if not parked and not self.moving[key]:
            return Standing.GONE
        if first in self.moving[key]:
            return Standing.MOVING
        if not parked or first != parked[0].origin:
            return Standing.MAIN
        if first >= self.position:
            return Standing.BEHIND
        return Standing.DUE if parked[0].due > self.now + 1e-7 else Standing.NEXT

    @rule(key=st.sampled_from(KEYS), read=st.booleans())
    def publish(self, key: bytes, read: bool) -> None:
        """Main's record is read at once, or much later."""
        self.main[key].append(self.next)
        self.next += 1
        self.settle(key)
        if read:
            self.read_on(self.next)

    @rule(count=st.integers(0, 5))
    def read_on(self, count: int) -> None:
        self.position = max(self.position, min(self.next, self.position + count))
        for key in self.parking.passed(self.position):
            assert self.standing[key] is Standing.BEHIND
            self.settle(key)
            assert self.standing[key] is not Standing.BEHIND

    @rule(key=st.sampled_from(KEYS), at=st.integers(0, 3))
    def departs(self, key: bytes, at: int) -> None:
        """Of main's waiting messages, any one."""
        if at < len(self.main[key]):
            origin = self.main[key].pop(at)
            self.parking.departs(key, origin)
            self.moving[key].add(origin)
            self.settle(key)

    @rule(key=st.sampled_from(KEYS), stored=st.booleans(), wait=DUES)
    def arrives(self, key: bytes, stored: bool, wait: float) -> None:
        """Any of those that move: now parked, or finished."""
        if self.moving[key]:
            origin = self.moving[key].pop()
            self.parking.arrives(key, origin)
            if stored:
                entry = Entry(origin, self.retry_next, self.now + wait, 2)
                self.retry_next += 1
                self.parking.line(key).add(entry)
                self.parked.append(Parked(key, entry))
            self.settle(key)

    @rule(seconds=st.sampled_from([0.0, 0.5, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for key in self.parking.due(self.now):
            assert self.standing[key] is Standing.DUE
            self.settle(key)
            assert self.standing[key] is not Standing.DUE

    @rule()
    def take(self) -> None:
        """The ready key with the smallest origin is handed out."""
        ready = {
            key: self.main[key][0] if self.standing[key] is Standing.MAIN else self.head(key).origin
            for key, line in self.parking.lines.items()
            if key not in self.held and self.standing[key] in (Standing.MAIN, Standing.NEXT)
        }
        found = self.parking.first()
        assert found == min(((origin, key) for key, origin in ready.items()), default=None)
        if found is not None:
            self.held.add(found[1])
            self.parking.unsettle(found[1])

    def head(self, key: bytes) -> Entry:
        return min((p.entry for p in self.parked if p.key == key), key=place)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), acked=st.booleans())
    def let_go(self, data: st.DataObject, acked: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        self.held.discard(key)
        line = self.parking.lines[key]
        entry = line.peek()
        if acked and self.standing[key] is Standing.MAIN:
            del self.main[key][0]
        elif acked and entry is not None and self.standing[key] is Standing.NEXT:
            head = self.head(key)
            assert place(entry) == place(head)
            line.pop()
            self.parked.remove(next(p for p in self.parked if place(p.entry) == place(head)))
        self.settle(key)

    @invariant()
    def books_agree(self) -> None:
        self.parking.check()
        assert len(self.parking) == len(self.parked)
        wake = self.parking.next_due()
        for key, line in self.parking.lines.items():
            head = line.peek()
            if key not in self.held and self.standing[key] is Standing.DUE and head and head.due != NEVER:
                assert wake is not None
                assert wake <= head.due + 1e-5


TestParking = ParkingMachine.TestCase
TestParking.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


def test_a_million_parked_messages_stay_small() -> None:
    tracemalloc.start()
    parking = Parking()
    keys = [b"customer-%06d" % number for number in range(10_000)]
    for number in range(100_000):  # a tenth of the million, and of the bound: the suite has better to do
        key = keys[number % 1_000]
        parking.line(key).add(Entry(number, number * 2, number / 1000, 2))
    for key in keys[:1_000]:
        parking.settle(key, None, 0, 0.0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 20_000_000 / 2, f"{size:,} bytes for 100,000 messages"


def test_a_key_that_is_parked_again_has_no_old_appointments() -> None:
    parking = Parking()
    parking.line(b"a").add(Entry(3, 0))
    assert parking.settle(b"a", None, 9, 0.0) is Standing.NEXT
    parking.ready(b"a")
    parking.line(b"a").pop()
    assert parking.settle(b"a", None, 9, 0.0) is Standing.GONE
    parking.line(b"a").add(Entry(5, 1, 100.0))
    assert parking.settle(b"a", None, 9, 0.0) is Standing.DUE
    assert parking.first() is None
