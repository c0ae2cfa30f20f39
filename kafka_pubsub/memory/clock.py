"""The cluster's time: one clock for sessions, timestamps and delayed reports.

Rules
1. `now` is seconds since the epoch and never goes back.
2. If you pass a clock, you move its time: with any clock but `SystemClock` nothing ever blocks, because the time
   would stand still while a call waits.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "VirtualClock"]


class Clock(Protocol):
    """Says what time it is."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class SystemClock:
    """The real time, made of the monotonic clock so that a corrected wall clock expires no session."""

    def __init__(self) -> None:
        self._start = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._start + time.monotonic()


class VirtualClock:
    """A time that stands still until it is told to move.

    Example:
        clock = VirtualClock()
        clock.advance(6.0)
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds since the epoch, as far as this world is concerned."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Moves on; a negative number of seconds is refused."""
        if seconds < 0:
            raise ValueError(f"time doesn't go back: advance({seconds})")
        self._now += seconds
