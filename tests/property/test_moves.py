"""Moves and outages against naive models."""

from __future__ import annotations

from operator import attrgetter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_pubsub.subscribe.formats.record import RetryInfo
from kafka_pubsub.subscribe.partition import outage
from kafka_pubsub.subscribe.partition.moves import (
    BATCH,
    BATCH_BYTES,
    DEAD_LETTERS,
    LONGEST_REFUSED,
    MOVES,
    Move,
    MoveQueue,
)
from kafka_pubsub.subscribe.partition.outage import Outage
from tests.support import FakeBody

record_of = attrgetter("record")


class MovesMachine(RuleBasedStateMachine):
    """Adds, loads, stores, aborts and takes back; nothing gets lost or is moved twice."""

    pace = MOVES

    def __init__(self) -> None:
        super().__init__()
        self.moves = MoveQueue[Move](self.pace)
        self.now = 0.0
        self.next = 0
        self.there: set[int] = set()
        self.unanswered: list[int] = []
        self.barred: dict[int, float] = {}

    @rule(
        size=st.sampled_from([1, 1, BATCH_BYTES // 2, BATCH_BYTES * 2]),
        main=st.booleans(),
        patience=st.sampled_from([0.0, 0.0, 0.15, 5.0]),
    )
    def add(self, size: int, main: bool, patience: float) -> None:
        record = FakeBody(size, self.next, b"k")
        move = Move(record, RetryInfo("t", 0, self.next), key=b"k", source=None if main else self.next)
        move.leave_at = self.now + patience
        self.moves.add(move)
        self.there.add(self.next)
        self.next += 1

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def load(self) -> None:
        due = self.moves.due_at()
        batch = self.moves.load(self.now, record_of)
        if self.unanswered:
            assert not batch, "two batches are unanswered"
            return
        assert bool(batch) == (due is not None and due <= self.now)
        assert len(batch) == 1 or sum(len(move.record) for move in batch) <= BATCH_BYTES
        self.unanswered = [move.origin for move in batch]
        assert all(self.barred.get(origin, 0) <= self.now for origin in self.unanswered)

    @precondition(lambda self: self.unanswered)
    @rule()
    def stored(self) -> None:
        assert [move.origin for move in self.moves.stored()] == self.unanswered
        self.there -= set(self.unanswered)
        self.unanswered = []

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data())
    def aborted(self, data: st.DataObject) -> None:
        refused = data.draw(st.sets(st.integers(0, len(self.unanswered) - 1), max_size=2))
        self.moves.aborted(dict.fromkeys(refused, "too large"), self.now)
        for at in refused:
            self.barred[self.unanswered[at]] = self.now + 1.0 - 1e-9
        self.unanswered = []

    @rule(source=st.integers(0, 50))
    def take_back(self, source: int) -> None:
        waits = source in {move.source for move in self.moves.waiting}
        move = self.moves.take_back(source)
        assert (move is not None) == waits
        if move is not None:
            assert move.source == source
            self.there.remove(move.origin)

    @invariant()
    def nothing_is_lost(self) -> None:
        held = [*self.moves.waiting, *self.moves.unanswered]
        assert sorted(move.origin for move in held) == sorted(self.there)
        assert len(self.moves) == len(held)
        assert self.moves.from_home == sum(move.source is None for move in held)
        assert len(self.moves.unanswered) <= self.pace.most

    def teardown(self) -> None:
        """However often it was refused: when the log takes it, it goes."""
        if self.unanswered:
            self.moves.aborted({}, self.now)
            self.unanswered = []
        for _ in range(len(self.there)):
            self.now += LONGEST_REFUSED
            self.moves.load(self.now, record_of)
            self.there -= {move.origin for move in self.moves.stored()}
        assert not self.there


class DeadLettersMachine(MovesMachine):
    """The same with the pace of dead letters, so with smaller batches."""

    pace = DEAD_LETTERS._replace(most=4)


TestMoves = MovesMachine.TestCase
TestMoves.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestDeadLetters = DeadLettersMachine.TestCase
TestDeadLetters.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_batch_is_bounded() -> None:
    moves = MoveQueue[Move](MOVES)
    for origin in range(BATCH + 5):
        moves.add(Move(FakeBody(1, origin), RetryInfo("t", 0, origin), key=None, source=None))
    assert len(moves.load(0.0, record_of)) == BATCH
    moves.stored()
    assert len(moves.load(0.0, record_of)) == 5


def fail(watch: Outage, count: int, first: int = 0) -> None:
    for origin in range(first, first + count):
        watch.failed(origin)


def test_one_bad_message_is_no_outage() -> None:
    watch = Outage()
    for _ in range(1000):
        watch.failed(7)
        assert not watch.look(1.0)
    assert watch.allows(5, 1.0)


def test_when_most_fail_it_probes_and_says_so_once() -> None:
    watch = Outage()
    watch.look(0.0)
    watch.acked(outage.ENOUGH)
    fail(watch, outage.ENOUGH)
    assert not watch.look(1.0)
    fail(watch, 1, 100)
    assert watch.look(1.0)
    assert not watch.look(1.0)
    assert not watch.allows(0, 1.0)
    assert watch.next_probe() == 1.0 + outage.PROBE_EVERY
    now = 1.0 + outage.PROBE_EVERY
    assert watch.allows(0, now)
    assert not watch.allows(1, now)
    watch.began(now)
    assert not watch.allows(0, now + 0.5)


def test_what_failed_long_ago_does_not_count() -> None:
    watch = Outage()
    for step in range(100):
        watch.look(step * outage.WINDOW)
        fail(watch, outage.ENOUGH // 3, step * 100)
        assert not watch.look(step * outage.WINDOW + 0.1)


def test_probes_in_a_row_end_it_and_a_failure_begins_the_row_again() -> None:
    watch = Outage()
    fail(watch, outage.ENOUGH)
    assert watch.look(0.0)
    for _ in range(5):
        watch.acked(outage.RECOVERED - 1)
        assert not watch.look(10.0)
        watch.failed(1)
    watch.acked(outage.RECOVERED)
    assert watch.look(20.0)
    assert watch.allows(100, 20.0)
    assert watch.next_probe() is None
    fail(watch, outage.ENOUGH - 1)
    assert not watch.look(20.0)


def test_dead_letters_are_few_while_it_probes() -> None:
    watch = Outage()
    assert all(watch.may_use_up(1.0) for _ in range(100))
    fail(watch, outage.ENOUGH)
    watch.look(0.0)
    deaths = sum(watch.may_use_up(second / 10) for second in range(600))
    assert deaths == 60 // outage.DEAD_LETTERS_EVERY - 1
