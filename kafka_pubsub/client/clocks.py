"""What a stream believes of its clocks.

Theory. Whatever is measured inside a process is measured by a clock that is never set. Due times cross processes, so
they are told by the wall clock, which may be wrong, and be set right while a stream runs. The core knows its own clock
and the difference; the difference is looked at again with each tick.

Rules
1. Time passes while a machine sleeps: its partitions go to others meanwhile, and what is due then is due.
2. Two clocks can't be read at the same time. What lies between two reads is no step of the wall clock, so a difference
   that fits what was seen is kept: due times stay exact while no clock is set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["AWAY", "Pulse", "WallClock", "steady_time"]

#: Seconds without a sweep after which our partitions may be others': half of the shortest session. Sweeps are a tenth
#: of a second apart; a machine so busy that it happens to them costs a commit.
AWAY = 3.0
#: Seconds by which the wall clock may drift before that is taken for a step; and that two reads may take, together.
DRIFT, QUICK = 0.01, 0.05

_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def steady_time() -> float:
    """Seconds of a clock that is never set, and that counts a machine's sleep where the platform can (Linux)."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


class WallClock:
    """The wall clock, as its difference from another clock."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._offset: float | None = None

    def offset(self, clock: Callable[[], float]) -> float:
        """The wall clock less the other one, in seconds, as of now."""
        before = clock()
        wall = self._wall()
        after = clock()
        least, most = wall - after, wall - before
        known = self._offset
        if known is None or (most - least < QUICK and not least - DRIFT <= known <= most + DRIFT):
            self._offset = known = (least + most) / 2
        return known


class Pulse:
    """Tells how long a process stood still (stopped, swapped out, a laptop's lid)."""

    def __init__(self) -> None:
        self._last = math.inf

    def away(self, now: float) -> float:
        """Seconds since it was asked last, if these are more than a busy machine takes; else 0."""
        away, self._last = now - self._last, now
        return away if away > AWAY else 0.0
