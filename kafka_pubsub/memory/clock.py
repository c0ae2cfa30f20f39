"""The clock of the in-memory Kafka, for sessions, timestamps and delayed reports.

Rules
1. `now` is seconds since the epoch and never goes back.
2. If you pass a clock, you move its time: with any clock but `SystemClock` no call ever blocks, because time would
   not pass while it waits.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "VirtualClock"]


class Clock(Protocol):
    """A source of the time."""

    def now(self) -> float:
        """Returns the seconds since the epoch."""
        ...


class SystemClock:
    """The real time, taken from the monotonic clock, so that a corrected wall clock expires no session."""

    def __init__(self) -> None:
        self._start = time.time() - time.monotonic()

    def now(self) -> float:
        """Returns the seconds since the epoch."""
        return self._start + time.monotonic()


class VirtualClock:
    """A clock that moves only when you call `advance`.

    Example:
        clock = VirtualClock()
        clock.advance(6.0)
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Returns the seconds since the epoch on this clock."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Moves the time forward; refuses a negative number of seconds."""
        if seconds < 0:
            raise ValueError(f"time doesn't go back: advance({seconds})")
        self._now += seconds
