"""What is believed of clocks: a step of the wall clock, noise between two reads, and a process that stood still."""

from __future__ import annotations

import inspect
import time

import pytest

from kafka_pubsub.log.clocks import AWAY, DRIFT, QUICK, Pulse, WallClock, steady_time
from kafka_pubsub.subscribe.stream.runner import StreamRunner


class Clocks:
    """Two clocks; each read of the steady clock takes a while."""

    def __init__(self) -> None:
        self.now, self.wrong_by, self.slow = 100.0, 5000.0, 0.0
        self.offset_of = WallClock(lambda: self.now + self.wrong_by)

    def steady(self) -> float:
        self.now += self.slow
        return self.now

    def offset(self) -> float:
        return self.offset_of.offset(self.steady)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_a_clock_that_is_set_is_believed(clocks: Clocks) -> None:
    assert clocks.offset() == 5000.0
    clocks.wrong_by = 0.0
    assert clocks.offset() == pytest.approx(0.0)


def test_what_lies_between_two_reads_is_no_step(clocks: Clocks) -> None:
    """Else a due time of ours, read back, would be some milliseconds off."""
    first = clocks.offset()
    for slow in (0.001, QUICK / 4, QUICK, 3.0):
        clocks.slow = slow
        assert clocks.offset() == first


def test_a_step_that_is_seen_while_reading_takes_long_is_believed_later(clocks: Clocks) -> None:
    first = clocks.offset()
    clocks.wrong_by, clocks.slow = 0.0, 2 * QUICK
    assert clocks.offset() == first
    clocks.slow = 0.0
    assert clocks.offset() == pytest.approx(0.0)


def test_a_clock_that_drifts_is_followed(clocks: Clocks) -> None:
    clocks.offset()
    for _ in range(100):
        clocks.wrong_by += DRIFT / 3
        assert abs(clocks.offset() - clocks.wrong_by) <= DRIFT + 1e-6


def test_only_a_long_pause_is_standing_still() -> None:
    pulse = Pulse()
    assert pulse.away(50.0) == 0.0, "it has just begun"
    assert pulse.away(50.0 + AWAY) == 0.0
    assert pulse.away(60.0 + AWAY) == 10.0
    assert pulse.away(60.0 + AWAY) == 0.0


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="a clock of Linux")
def test_the_engine_counts_the_time_for_which_a_machine_sleeps() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= steady_time() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert inspect.signature(StreamRunner).parameters["clock"].default is steady_time
