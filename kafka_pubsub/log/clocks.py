"""The clocks of a stream, and how long things take by them.

Theory. Durations inside a process are measured by a clock that is never set. Due times cross processes, so they use
the wall clock, which may be wrong and may be corrected while a stream runs. The core gets the time of the first clock
and the difference between the two; each tick measures the difference again.

Rules
1. The first clock counts the time in which a machine sleeps: other members own its partitions by then, and messages
   become due.
2. Two clocks can't be read at the same moment. The time between the two reads is not a step of the wall clock, so a
   known difference that agrees with both reads is kept: due times stay exact while no clock is set.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime

from kafka_pubsub.counters import BOUNDS, Times
from kafka_pubsub.log.ports import MovableClock

__all__ = [
    "AWAY",
    "Durations",
    "Pulse",
    "WallClock",
    "moment",
    "steady_milliseconds",
    "steady_time",
    "wall_time",
]

#: Seconds without a sweep after which other members may own our partitions: half of the shortest session. Sweeps are
#: a tenth of a second apart; if a busy machine delays them by this much, that costs one commit.
AWAY = 3.0
#: Seconds by which the wall clock may drift before the drift counts as a step; seconds that two reads may take.
DRIFT, QUICK = 0.01, 0.05
#: Milliseconds that a sum of seconds may be too low, because it is a binary fraction.
_ROUNDING = 0.001

_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def steady_time() -> float:
    """Returns the seconds of a clock that is never set, and that counts a machine's sleep on Linux."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


def wall_time(clock: MovableClock | None) -> float:
    """Returns the seconds since the epoch, by the cluster's clock if a test moves one."""
    return time.time() if clock is None else clock.now()


def steady_milliseconds(clock: MovableClock | None = None) -> int:
    """Returns milliseconds of a clock that is never set: `steady_time`, or the cluster's clock if a test moves it."""
    return int((steady_time() if clock is None else clock.now()) * 1000 + _ROUNDING)


class WallClock:
    """The wall clock, as its difference from another clock."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._offset: float | None = None

    def offset(self, clock: Callable[[], float]) -> float:
        """Returns the wall clock less `clock`, in seconds, as of now."""
        before = clock()
        wall = self._wall()
        after = clock()
        least, most = wall - after, wall - before
        known = self._offset
        if known is None or (most - least < QUICK and not least - DRIFT <= known <= most + DRIFT):
            self._offset = known = (least + most) / 2
        return known


class Pulse:
    """Measures how long a process stood still (stopped, swapped out, or on a machine that slept)."""

    def __init__(self) -> None:
        self._last = math.inf

    def away(self, now: float) -> float:
        """Returns the seconds since the last call, if they are more than `AWAY`; else 0."""
        away, self._last = now - self._last, now
        return away if away > AWAY else 0.0


def moment(milliseconds: int) -> datetime:
    """Converts milliseconds since 1970 to a time; a value outside of the calendar becomes 1970."""
    try:
        return datetime.fromtimestamp(max(milliseconds, 0) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


class Durations:
    """How long something takes; any thread may add."""

    __slots__ = ("_counts", "_lock", "_seconds")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._lock = threading.Lock()

    def add(self, seconds: float, messages: int = 1) -> None:
        """Counts a run of messages that took so long together: each of them its share."""
        if messages > 0:
            at = bisect_left(BOUNDS, seconds / messages)
            with self._lock:
                self._counts[at] += messages
                self._seconds += seconds

    def times(self) -> Times:
        """Returns how it is now."""
        with self._lock:
            return Times(self._counts.copy(), self._seconds)
