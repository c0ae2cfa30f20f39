"""Reports the same trouble once in a while, not each time that it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

__all__ = ["Throttle"]


class Throttle:
    """Decides by trouble whether it is time to report it again."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` must pass between two reports of the same trouble."""
        self._seconds, self._clock = seconds, clock
        # Trouble -> when it was last reported. Empty: nothing was.
        self._reported: dict[Hashable, float] = {}

    def admit(self, trouble: Hashable, *, always: bool = False) -> bool:
        """Whether to report it now; `always`: however lately it was reported."""
        now, last = self._clock(), self._reported.get(trouble)
        if not always and last is not None and now - last < self._seconds:
            return False
        self._reported[trouble] = now
        return True
