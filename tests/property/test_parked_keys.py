"""Parked keys against a naive model: the smallest origin goes first, when it is due and main was read past it."""

from __future__ import annotations

import tracemalloc
from typing import NamedTuple, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_pubsub.subscribe.formats.record import Why
from kafka_pubsub.subscribe.partition import key_line as parked
from kafka_pubsub.subscribe.partition import packed_lines
from kafka_pubsub.subscribe.partition.key_line import FEW, NEVER, Entry, Front, KeyLine, schedule_of
from kafka_pubsub.subscribe.partition.packed_lines import SHORT, PackedLines
from kafka_pubsub.subscribe.partition.parked_keys import ParkedKeys, Standing
from kafka_pubsub.subscribe.partition.unkeyed import Unkeyed

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


#: Messages that wait for others of their key only, which are almost all.
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
    line, model = KeyLine(), list[Entry]()
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
            assert front == ((*place(model[0]), *schedule_of(model[0])) if model else None)
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


@given(
    st.lists(
        st.tuples(entries | followers, st.integers(0, 3), st.booleans(), st.sampled_from([b"a", b"b"])),
        max_size=60,
    ),
    st.sampled_from([2, SHORT]),
)
def test_what_waits_of_each_key_is_a_sorted_list(
    steps: list[tuple[Entry, int, bool, bytes]], short: int
) -> None:
    with patch.object(packed_lines, "SHORT", short):
        compare_keys(steps)


def compare_keys(steps: list[tuple[Entry, int, bool, bytes]]) -> None:
    waiting, models = PackedLines(), dict[bytes, list[Entry]]()
    offsets: set[int] = set()
    for entry, pops, remove, key in steps:
        model = models.setdefault(key, [])
        if entry.offset not in offsets:
            offsets.add(entry.offset)
            waiting.add(key, entry)
            model.append(entry)
            model.sort(key=place)
        for _ in range(min(pops, len(model))):
            waiting.drop_first(key)
            del model[0]
        if remove and len(model) > 1:
            found = waiting.find(key, *place(model[1]))
            assert found is not None
            waiting.remove(key, found)
            del model[1]
        assert waiting.find(key, 41, 0) is None
        assert waiting.first_of(key, 41) is None
        for at in range(3):
            peeked = waiting.peek(key, at)
            assert (None if peeked is None else same(peeked)) == (
                same(model[at]) if at < len(model) else None
            )
        front = waiting.front(key)
        assert front == ((*place(model[0]), *schedule_of(model[0])) if model else None)
        if model:
            first = waiting.first_of(key, model[-1].origin)
            assert first is not None
            assert place(first) == min(place(each) for each in model if each.origin == model[-1].origin)
        assert waiting.count(key) == len(model)
        assert [same(each) for each in waiting.entries(key)] == [same(each) for each in model]
    assert waiting.total() == sum(map(len, models.values()))


def test_a_key_is_a_string_again_when_few_of_its_messages_are_left() -> None:
    waiting = PackedLines()
    for number in range(SHORT + 1):
        assert not isinstance(waiting.get(b"k"), KeyLine)
        waiting.add(b"k", Entry(number, number))
    assert isinstance(waiting.get(b"k"), KeyLine)
    while waiting.count(b"k") > 1:
        waiting.drop_first(b"k")
    assert isinstance(waiting.get(b"k"), bytes)


def same(entry: Entry) -> tuple[object, ...]:
    """Whatever isn't a time to a millionth of a second."""
    return (*place(entry), *entry[3:])


def test_what_waits_for_others_takes_sixteen_bytes_each() -> None:
    tracemalloc.start()
    try:
        line = KeyLine()
        line.add(Entry(0, 0, 100.0, 2))
        for origin in range(1, 100_000):
            line.add(Entry(origin, origin, -5.0, why=Why.BACKLOG))
        line.pop()
        line.add(Entry(0, 1_000_000, 200.0, 3))
        assert tracemalloc.get_traced_memory()[0] < 20 * len(line)
    finally:
        tracemalloc.stop()


def test_what_comes_out_of_order_leaves_the_others_alone() -> None:
    line = KeyLine()
    for number in range(10_000):
        line.add(Entry(number, number, -5.0, why=Why.BACKLOG))
    moved = [entry for number in range(100) if (entry := line.get(number, number))]
    for entry in moved:
        line.remove(entry)
    for entry in moved:  # to the tail of the retry topic, as when its map is full
        line.add(entry._replace(offset=entry.offset + 20_000))
    with patch.object(parked, "entry_of", side_effect=AssertionError("looked at one of ten thousand")):
        assert line.front() is not None
    assert [entry.origin for entry in line] == list(range(10_000))


def test_what_is_given_back_before_anybody_looks_is_there_once() -> None:
    line = KeyLine()
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
    loose = Unkeyed()
    waiting = [Entry(number, number, float(number)) for number in range(1, 5)]
    for entry in waiting:
        loose.add(entry)
    for entry in waiting[:3]:
        assert loose.remove(entry)
    assert loose.next_due() == 4.0


def test_many_out_of_order_are_sorted_at_once() -> None:
    line = KeyLine()
    for origin in [500, *range(1000, 1500), *range(501, 1000), *range(300, 500)]:
        line.add(Entry(origin, 5000 - origin))
    assert [entry.origin for entry in line] == list(range(300, 1500))


class LooseMachine(RuleBasedStateMachine):
    """Messages without a key against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.loose = Unkeyed()
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
        self.parking = ParkedKeys()
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
            self.parking.may_go(key, self.parking.lines.entries(key).__next__().origin)

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
            return Standing.HOME
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
        self.come(self.parking.passed(self.position), Standing.BEHIND)

    def come(self, keys: list[bytes], before: Standing) -> None:
        """All that stood so and go on are among these; a key that a holder has may be, too."""
        for key in keys:
            self.settle(key)
        for key, standing in self.standing.items():
            if standing is before and key in self.parking.lines and key not in self.held:
                assert self.expected(key) is before

    @rule(key=st.sampled_from(KEYS), at=st.integers(0, 3))
    def departs(self, key: bytes, at: int) -> None:
        """Any of main's waiting messages; the first message of a key that is held doesn't wait."""
        held = key in self.held and self.standing[key] is Standing.HOME
        if held <= at < len(self.main[key]):
            origin = self.main[key].pop(at)
            self.parking.departs(key, origin)
            self.moving[key].add(origin)
            self.settle(key)

    @rule(key=st.sampled_from(KEYS), stored=st.booleans(), wait=DUES)
    def arrives(self, key: bytes, stored: bool, wait: float) -> None:
        """Any of the moving messages: now parked, or finished."""
        if self.moving[key]:
            origin = self.moving[key].pop()
            self.parking.arrives(key, origin)
            if stored:
                entry = Entry(origin, self.retry_next, self.now + wait, 2)
                self.retry_next += 1
                self.parking.lines.add(key, entry)
                self.parked.append(Parked(key, entry))
            self.settle(key)

    @rule(seconds=st.sampled_from([0.0, 0.5, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.come(self.parking.due(self.now), Standing.DUE)

    @rule()
    def take(self) -> None:
        """The ready key with the smallest origin is handed out."""
        ready = {
            key: self.main[key][0] if self.standing[key] is Standing.HOME else self.head(key).origin
            for key in self.parking.lines
            if key not in self.held and self.standing[key] in (Standing.HOME, Standing.NEXT)
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
        entry = self.parking.lines.peek(key)
        if acked and self.standing[key] is Standing.HOME:
            del self.main[key][0]
        elif acked and entry is not None and self.standing[key] is Standing.NEXT:
            head = self.head(key)
            assert place(entry) == place(head)
            self.parking.lines.drop_first(key)
            self.parked.remove(next(p for p in self.parked if place(p.entry) == place(head)))
        self.settle(key)

    @invariant()
    def books_agree(self) -> None:
        self.parking.check()
        assert len(self.parking) == len(self.parked)
        wake = self.parking.next_due()
        for key in self.parking.lines:
            head = self.parking.lines.peek(key)
            if key not in self.held and self.standing[key] is Standing.DUE and head and head.due != NEVER:
                assert wake is not None
                assert wake <= head.due + 1e-5


TestParking = ParkingMachine.TestCase
TestParking.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


def test_a_million_parked_messages_stay_small() -> None:
    tracemalloc.start()
    parking = ParkedKeys()
    keys = [b"customer-%06d" % number for number in range(10_000)]
    for number in range(100_000):  # a tenth of the million, and of the bound: the suite has better to do
        key = keys[number % 1_000]
        parking.lines.add(key, Entry(number, number * 2, number / 1000, 2))
    for key in keys[:1_000]:
        parking.settle(key, None, 0, 0.0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 20_000_000 / 2, f"{size:,} bytes for 100,000 messages"


def test_a_million_keys_with_a_message_each_stay_small() -> None:
    """Less than 250 bytes a key, its name and its appointment included: an outage parks a key a message."""
    count = 50_000
    tracemalloc.start()
    try:
        parking = ParkedKeys()
        for number in range(count):
            key = b"customer-%09d" % number
            parking.lines.add(key, Entry(3 * number, number, 3600 + number / 1000, 2))
            assert parking.settle(key, None, 3 * count, 0.0) is Standing.DUE
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 250 * count, f"{size / count:.0f} bytes a key"
    assert peak < 300 * count, f"{peak / count:.0f} bytes a key for a moment"


class Asked(PackedLines):
    """Counts how often the waiting messages of a key are asked for."""

    asked = 0

    def front(self, key: bytes) -> Front | None:
        self.asked += 1
        return super().front(key)


@pytest.mark.parametrize("keys", [100, 5_000])
def test_a_look_at_the_clock_costs_what_is_due_and_not_what_is_parked(keys: int) -> None:
    """Ten of them are due in a minute, ten in two, all others in an hour."""
    parking = ParkedKeys()
    with_an_hour = [b"%d" % number for number in range(keys)]
    for number, key in enumerate(with_an_hour):
        due = 60.0 + number / 1000 if number < 10 else 120.0 if number < 20 else 3600.0
        parking.lines.add(key, Entry(number, number, due, 2))
        parking.settle(key, None, keys, 0.0)
    parking.lines.__class__ = Asked
    counted = cast("Asked", parking.lines)
    assert parking.due(50.0) == []
    assert counted.asked == 0
    assert sorted(parking.due(70.0)) == sorted(with_an_hour[:10])
    assert counted.asked == 20, "each when its span begins, and when it is due"
    assert parking.due(119.0) == []
    assert counted.asked <= 30


def test_appointments_that_count_no_longer_are_swept() -> None:
    parking = ParkedKeys()
    for number in range(100):
        parking.lines.add(b"%d" % number, Entry(number, number, 3600.0 + number, 2))
    for _ in range(50):
        for number in range(100):
            parking.settle(b"%d" % number, None, 100, 0.0)
            parking.check()
    assert sorted(parking.due(4000.0)) == sorted(b"%d" % number for number in range(100))


def test_a_key_that_is_parked_again_has_no_old_appointments() -> None:
    parking = ParkedKeys()
    parking.lines.add(b"a", Entry(3, 0))
    assert parking.settle(b"a", None, 9, 0.0) is Standing.NEXT
    parking.may_go(b"a", 3)
    parking.lines.drop_first(b"a")
    assert parking.settle(b"a", None, 9, 0.0) is Standing.GONE
    parking.lines.add(b"a", Entry(5, 1, 100.0))
    assert parking.settle(b"a", None, 9, 0.0) is Standing.DUE
    assert parking.first() is None
