"""What happens by itself once its time has come.

Theory: nobody runs a thread for it. Whoever looks at the cluster makes up first for what should have happened by
then, in the order of the times; so no one ever sees a state that a running cluster wouldn't have shown.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from kafka_pubsub.memory.clock import Clock

__all__ = ["Later"]


class Later:
    """Things to come, by time; of equal times the one that was set first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._things: list[tuple[float, int, Callable[[], object]]] = []
        self._set = 0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now()

    def at(self, time: float, thing: Callable[[], object]) -> None:
        """Does it at that time; at once if that is over."""
        if time <= self._clock.now():
            thing()
            return
        self._set += 1
        heapq.heappush(self._things, (time, self._set, thing))

    def run(self) -> bool:
        """Does what is due; whether anything was."""
        if not self._things:
            return False
        now, done = self._clock.now(), False
        while self._things and self._things[0][0] <= now:
            heapq.heappop(self._things)[2]()
            done = True
        return done

    def next_in(self) -> float:
        """Seconds until the next thing; infinite if there is none."""
        return self._things[0][0] - self._clock.now() if self._things else math.inf
