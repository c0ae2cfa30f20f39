"""I6 in part: who is fetched from and who isn't, over every way in which partitions fill and drain."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka_pubsub.subscribe.fetch_window import AHEAD, ENOUGH, FULL, MOVES, WINDOW, BufferGate, Held

LIMIT = 1_000_000

LEVELS = st.builds(Held, st.integers(0, 2 * WINDOW), st.integers(0, 2 * LIMIT))
EMPTY = Held(0, 0)


def fill(held: dict[int, Held], number: int) -> float:
    """How full a partition is, against its share."""
    each = held[number]
    return max(each.records / WINDOW, each.bytes * len(held) / LIMIT)


def filled(held: dict[int, Held]) -> dict[int, Held]:
    """Partitions that hold anything; the gate is told of no others."""
    return {number: each for number, each in held.items() if each[:2] != EMPTY[:2]}


def wait(gate: BufferGate[int], held: dict[int, Held]) -> list[int]:
    """Waits for room twice, during which nothing moves; returns the paused partitions."""
    return [*gate.change(filled(held), held).pause, *gate.change(filled(held), held).pause]


class GateMachine(RuleBasedStateMachine):
    """Partitions come, go, fill and drain; the gate turns valves."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: BufferGate[int] = BufferGate(LIMIT)
        self.held: dict[int, Held] = {}
        #: The paused partitions, with the fill that each had then.
        self.paused: dict[int, float] = {}
        #: How many waits for room a partition has stood still, up to the last; partitions that moved since aren't here.
        self.stood: dict[int, int] = {}
        self.turned = False

    @rule(numbers=st.sets(st.integers(0, 5)))
    def assign(self, numbers: set[int]) -> None:
        self.held = {number: self.held.get(number, EMPTY) for number in numbers}
        self.gate.forget(numbers)
        self.paused.clear()
        self.stood.clear()
        self.turned = False

    @rule(data=st.data(), level=LEVELS)
    def fill(self, data: st.DataObject, level: Held) -> None:
        if self.held:
            number = data.draw(st.sampled_from(sorted(self.held)))
            self.held[number] = level._replace(finished=self.held[number].finished)
            self.turned = False

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        if self.held:
            number = data.draw(st.sampled_from(sorted(self.held)))
            each = self.held[number]
            self.held[number] = each._replace(finished=each.finished + WINDOW)
            self.stood.pop(number, None)

    @rule()
    def drain(self) -> None:
        self.held = {number: Held(0, 0, each.finished) for number, each in self.held.items()}
        self.turned = False

    @rule()
    def turn(self) -> None:
        full = self.gate.full(filled(self.held), self.held)
        change = self.gate.change(filled(self.held), self.held)
        assert not set(change.pause) & set(change.resume)
        assert not set(change.pause) & self.paused.keys(), "paused twice"
        assert set(change.resume) <= self.paused.keys(), "resumed without a pause"
        far_ahead = {number for number, each in self.held.items() if each.records >= AHEAD * WINDOW}
        assert full or set(change.pause) <= far_ahead, "paused although there is room"
        standing = {number for number in filled(self.held) if self.stood.get(number, 0)}
        assert set(change.pause) <= far_ahead | standing, "paused although it moves on"
        for number in change.pause:
            assert fill(self.held, number) >= FULL
        for number in standing - self.paused.keys():
            assert not full or fill(self.held, number) < FULL or number in change.pause, (
                "it holds up the others"
            )
        for number in change.resume:
            assert fill(self.held, number) <= max(ENOUGH, self.paused[number] / 2)
        self.paused |= {number: fill(self.held, number) for number in change.pause}
        self.paused = {n: level for n, level in self.paused.items() if n not in change.resume}
        if full:
            self.stood = {number: self.stood.get(number, 0) + 1 for number in filled(self.held)}
        self.turned = True

    @invariant()
    def what_is_paused_is_never_empty(self) -> None:
        if not self.turned:
            return
        assert self.gate.paused == self.paused.keys()
        for number, level in self.paused.items():
            assert fill(self.held, number) > max(ENOUGH, level / 2)
            assert self.held[number][:2] != EMPTY[:2]

    @invariant()
    def turning_twice_turns_nothing_more_unless_others_are_full(self) -> None:
        """No flutter: with the same fill, a valve that was just turned isn't turned back."""
        if self.turned:
            change = BufferGate.change(self.copy(), filled(self.held), self.held)
            assert not change.resume
            assert not set(change.pause) & self.paused.keys()

    def copy(self) -> BufferGate[int]:
        return deepcopy(self.gate)


TestGate = GateMachine.TestCase


@given(level=LEVELS, count=st.integers(2, 8), stuck=st.integers(1, 7))
def test_stuck_partitions_do_not_stop_the_others(level: Held, count: int, stuck: int) -> None:
    """Whatever some hold: once they are paused, the empty ones are fetched without waiting."""
    assume(stuck < count)
    gate: BufferGate[int] = BufferGate(LIMIT)
    held = {number: level if number < stuck else EMPTY for number in range(count)}
    while wait(gate, held):
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
        while gate.full(filled(held), held) and wait(gate, held):
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
    assert wait(gate, {0: Held(10, LIMIT), 1: EMPTY}) == [0]
    for level in (1.9, 1.5, 1.01):
        assert gate.change({0: Held(10, int(LIMIT / 2 * level))}, range(2)) == ([], [])
    assert gate.change({0: Held(10, LIMIT // 2)}, range(2)) == ([], [0])


def test_a_partition_that_moves_on_is_not_paused_until_it_stands_still() -> None:
    gate: BufferGate[int] = BufferGate(LIMIT)
    held = Held(1900, LIMIT)
    for number in range(5):
        assert gate.change({0: held._replace(finished=number * int(MOVES * 1900 + 1))}, range(2)) == ([], [])
    assert gate.change({0: held._replace(finished=4 * int(MOVES * 1900 + 1) + 1)}, range(2)).pause == [0]


def test_a_partition_that_goes_away_paused_comes_back_flowing() -> None:
    gate: BufferGate[int] = BufferGate(LIMIT)
    assert wait(gate, {0: Held(1, LIMIT)}) == [0]
    assert gate.change({}, {}) == ([], [])
    assert not gate.paused
