"""Limits how often the same error is reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

__all__ = ["Throttle"]


class Throttle:
    """Decides for each error whether it is time to report it again."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` must pass between two reports of the same error."""
        self._seconds, self._clock = seconds, clock
        # Error -> when it was last reported. Empty: none was.
        self._reported: dict[Hashable, float] = {}

    def admit(self, trouble: Hashable, *, always: bool = False) -> bool:
        """Returns whether to report it now; with `always` in any case."""
        now, last = self._clock(), self._reported.get(trouble)
        if not always and last is not None and now - last < self._seconds:
            return False
        self._reported[trouble] = now
        return True
