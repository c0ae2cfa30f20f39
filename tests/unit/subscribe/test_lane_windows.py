"""How far each lane is read ahead: rules of `subscribe/lane_windows.py`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.fetch_window import AHEAD, WINDOW, Held
from kafka_pubsub.subscribe.lane_windows import LEAST, NARROW, WIDE_FOR, LaneWindows

LIMIT = 1_000_000
LOW, MIDDLE, HIGH = (PartitionId(priority, 0) for priority in range(3))
OWNED = [LOW, MIDDLE, HIGH]


def going_high() -> LaneWindows:
    """High messages go; low ones were read, too."""
    windows = LaneWindows(LIMIT)
    for priority, number in enumerate(OWNED):
        windows.come(number, priority)
    windows.go(HIGH, 2, 10.0)
    return windows


def test_a_lane_that_higher_ones_hold_up_is_paused_at_its_small_window() -> None:
    windows = going_high()
    held = {LOW: Held(NARROW, 1), HIGH: Held(NARROW, 1)}
    assert windows.change(held, OWNED, (), waited=False) == ([LOW], [])


def test_a_lane_that_goes_resumes_at_once() -> None:
    windows = going_high()
    held = {LOW: Held(NARROW, 1)}
    assert windows.change(held, OWNED, [LOW], waited=False) == ([], [])
    windows.go(LOW, 0, 11.0)
    assert windows.turned
    assert windows.change(held, OWNED, [LOW], waited=False) == ([], [LOW])


def test_lanes_that_take_turns_stay_wide_and_others_become_narrow() -> None:
    windows = going_high()
    windows.go(LOW, 0, 11.0)
    windows.go(HIGH, 2, 11.0 + WIDE_FOR / 2)
    assert windows.is_wide(LOW)
    windows.go(HIGH, 2, 11.0 + WIDE_FOR)
    assert not windows.is_wide(LOW)


def test_a_lane_that_a_choice_waits_for_is_never_paused() -> None:
    windows = going_high()
    windows.want([MIDDLE])
    full = {MIDDLE: Held(10 * WINDOW, 10 * LIMIT)}
    assert windows.change(full, OWNED, (), waited=True) == ([], [])
    assert windows.change(full, OWNED, [MIDDLE], waited=True) == ([], [MIDDLE])


def test_priorities_below_one_that_is_read_to_its_end_become_wide_before_they_go() -> None:
    windows = going_high()
    windows.go(HIGH, 1, 10.1)
    assert windows.is_wide(MIDDLE)
    assert not windows.is_wide(LOW)


LEVELS = st.builds(Held, st.integers(0, 3 * WINDOW), st.integers(0, 2 * LIMIT))


@given(levels=st.tuples(LEVELS, LEVELS, LEVELS), paused=st.sets(st.sampled_from(OWNED)), low=st.booleans())
def test_nothing_stays_full_for_ever(
    levels: tuple[Held, Held, Held], paused: set[PartitionId], low: bool
) -> None:
    """Whatever is held: once waiting hasn't helped, there is room, and an empty lane isn't paused."""
    windows = going_high()
    if low:
        windows.go(LOW, 0, 20.0)
    held = {number: each for number, each in zip(OWNED, levels, strict=True) if each != Held(0, 0)}
    for _ in range(3):
        change = windows.change(held, OWNED, paused, waited=True)
        assert not set(change.pause) & paused
        assert set(change.resume) <= paused
        paused = paused.union(change.pause).difference(change.resume)
    assert paused <= held.keys()
    assert windows.room(held, OWNED, paused) > 0
    for number, each in held.items():
        if each.records >= AHEAD * WINDOW:
            assert number in paused
    assert change == ([], []), "no flutter"


def test_little_room_is_none() -> None:
    windows = going_high()
    held = {HIGH: Held(int(0.75 * WINDOW) - LEAST + 1, 1)}
    assert windows.change(held, OWNED, (), waited=False) == ([], [])
    held = {HIGH: Held(int(0.75 * WINDOW), 1)}
    assert windows.change(held, OWNED, (), waited=False) == ([], [])
    assert windows.change(held, OWNED, (), waited=True) == ([HIGH], [])
