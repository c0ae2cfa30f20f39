"""I6 in part: who is fetched from and who isn't, over every way in which partitions fill and drain."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka_pubsub.core.delivery.fetch_window import AHEAD, ENOUGH, FULL, WINDOW, BufferGate, Held

LIMIT = 1_000_000

LEVELS = st.builds(Held, st.integers(0, 2 * WINDOW), st.integers(0, 2 * LIMIT))
EMPTY = Held(0, 0)


def fill(held: dict[int, Held], number: int) -> float:
    """How full a partition is, against its share."""
    each = held[number]
    return max(each.records / WINDOW, each.bytes * len(held) / LIMIT)


def filled(held: dict[int, Held]) -> dict[int, Held]:
    """Those that hold anything; the gate is told of no others."""
    return {number: each for number, each in held.items() if each != EMPTY}


class GateMachine(RuleBasedStateMachine):
    """Partitions come, go, fill and drain; the gate turns valves."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: BufferGate[int] = BufferGate(LIMIT)
        self.held: dict[int, Held] = {}
        self.paused: set[int] = set()
        self.turned = False

    @rule(numbers=st.sets(st.integers(0, 5)))
    def assign(self, numbers: set[int]) -> None:
        self.held = {number: self.held.get(number, EMPTY) for number in numbers}
        self.gate.forget(numbers)
        self.paused.clear()
        self.turned = False

    @rule(data=st.data(), level=LEVELS)
    def fill(self, data: st.DataObject, level: Held) -> None:
        if self.held:
            self.held[data.draw(st.sampled_from(sorted(self.held)))] = level
            self.turned = False

    @rule()
    def drain(self) -> None:
        self.held = dict.fromkeys(self.held, EMPTY)
        self.turned = False

    @rule()
    def turn(self) -> None:
        full = self.gate.full(filled(self.held), self.held)
        change = self.gate.change(filled(self.held), self.held)
        assert not set(change.pause) & set(change.resume)
        assert not set(change.pause) & self.paused, "paused twice"
        assert set(change.resume) <= self.paused, "resumed without a pause"
        far_ahead = {number for number, each in self.held.items() if each.records >= AHEAD * WINDOW}
        assert full or set(change.pause) <= far_ahead, "paused although there is room"
        for number in change.pause:
            assert fill(self.held, number) >= FULL
        for number in change.resume:
            assert fill(self.held, number) <= ENOUGH
        self.paused = (self.paused | set(change.pause)) - set(change.resume)
        self.turned = True

    @invariant()
    def what_is_paused_is_never_empty(self) -> None:
        if not self.turned:
            return
        assert self.gate.paused == self.paused
        for number in self.paused:
            assert fill(self.held, number) > ENOUGH
            assert self.held[number] != EMPTY

    @invariant()
    def turning_twice_turns_nothing_more_unless_others_are_full(self) -> None:
        """No flutter: with the same fill, a valve that was just turned isn't turned back."""
        if self.turned:
            change = BufferGate.change(self.copy(), filled(self.held), self.held)
            assert not change.resume
            assert not set(change.pause) & self.paused

    def copy(self) -> BufferGate[int]:
        other: BufferGate[int] = BufferGate(LIMIT)
        other.paused = set(self.gate.paused)
        return other


TestGate = GateMachine.TestCase


@given(level=LEVELS, count=st.integers(2, 8), stuck=st.integers(1, 7))
def test_stuck_partitions_do_not_stop_the_others(level: Held, count: int, stuck: int) -> None:
    """Whatever some hold: once they are paused, the empty ones are fetched without waiting."""
    assume(stuck < count)
    gate: BufferGate[int] = BufferGate(LIMIT)
    held = {number: level if number < stuck else EMPTY for number in range(count)}
    while gate.change(filled(held), held).pause:
        pass
    assert not gate.full(filled(held), held)
    assert not any(number in gate.paused for number in range(stuck, count))


@given(
    levels=st.lists(LEVELS, min_size=1, max_size=8),
    batch=st.builds(Held, st.integers(1, 500), st.integers(1, LIMIT // 10)),
)
def test_what_is_buffered_is_bounded_when_nothing_is_ever_finished(levels: list[Held], batch: Held) -> None:
    """Partitions that only ever fill: the fetching stops, at twice the limit and a read each at the most."""
    gate: BufferGate[int] = BufferGate(LIMIT)
    held = dict.fromkeys(range(len(levels)), EMPTY)
    for _ in range(20_000):
        while gate.full(filled(held), held) and gate.change(filled(held), held).pause:
            pass
        flowing = [number for number in held if number not in gate.paused]
        if not flowing:
            break
        for number in flowing:
            held[number] = Held(held[number].records + batch.records, held[number].bytes + batch.bytes)
    else:
        raise AssertionError("it never stopped")
    reads = len(held) * batch.bytes * 2
    assert sum(each.bytes for each in held.values()) <= 2 * LIMIT + reads
    assert all(each.records <= WINDOW + batch.records for each in held.values())


def test_nothing_is_full_that_is_not_there() -> None:
    gate: BufferGate[int] = BufferGate(LIMIT)
    assert not gate.full({}, {})
    assert gate.change({}, {}) == ([], [])


def test_a_paused_partition_resumes_at_half_and_not_before() -> None:
    gate: BufferGate[int] = BufferGate(LIMIT)
    assert gate.change({0: Held(10, LIMIT)}, range(2)).pause == [0]
    for level in (0.7, 0.5, 0.4):
        assert gate.change({0: Held(10, int(LIMIT / 2 * level))}, range(2)) == ([], [])
    assert gate.change({0: Held(10, int(LIMIT / 2 * 0.37))}, range(2)) == ([], [0])


def test_a_partition_that_goes_away_paused_comes_back_flowing() -> None:
    gate: BufferGate[int] = BufferGate(LIMIT)
    assert gate.change({0: Held(1, LIMIT)}, [0]).pause == [0]
    assert gate.change({}, {}) == ([], [])
    assert not gate.paused
