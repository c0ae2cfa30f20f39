"""The clock of the in-memory Kafka, for sessions, timestamps and delayed reports.

Rules
1. `now` returns the seconds since 1970 and never goes back.
2. If you pass a clock, you set its time. With any clock but `SystemClock` no call ever blocks, because the time would
   not pass while it waits.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "VirtualClock"]


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> float:
        """Returns the seconds since 1970."""
        ...


class SystemClock:
    """The real time, from the monotonic clock, so that a correction of the wall clock expires no session."""

    def __init__(self) -> None:
        self._start = time.time() - time.monotonic()

    def now(self) -> float:
        """Returns the seconds since 1970."""
        return self._start + time.monotonic()


class VirtualClock:
    """A clock whose time changes only when you call `advance`.

    Example:
        clock = VirtualClock()
        clock.advance(6.0)
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Returns the seconds since 1970 on this clock."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Moves the time forward; raises `ValueError` if `seconds` is negative."""
        if seconds < 0:
            raise ValueError(f"time doesn't go back: advance({seconds})")
        self._now += seconds
