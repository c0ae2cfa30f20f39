"""Actions that the cluster takes by itself when their time has come.

Theory: no thread runs for them. Each call that uses the cluster first runs the actions that are due by
then, in the order of their times; so no caller ever sees a state that a running cluster wouldn't have shown.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from kafka_pubsub.log.memory.clock import Clock

__all__ = ["Later"]


class Later:
    """Future actions, ordered by time; those of equal times in the order in which they were added."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._things: list[tuple[float, int, Callable[[], object]]] = []
        self._set = 0

    def now(self) -> float:
        """Returns the seconds since the epoch."""
        return self._clock.now()

    def at(self, time: float, thing: Callable[[], object]) -> None:
        """Runs an action at that time; at once if the time has passed."""
        if time <= self._clock.now():
            thing()
            return
        self._set += 1
        heapq.heappush(self._things, (time, self._set, thing))

    def run(self) -> bool:
        """Runs the actions that are due; returns whether there were any."""
        if not self._things:
            return False
        now, done = self._clock.now(), False
        while self._things and self._things[0][0] <= now:
            heapq.heappop(self._things)[2]()
            done = True
        return done

    def next_in(self) -> float:
        """Returns the seconds until the next action; infinite if there is none."""
        return self._things[0][0] - self._clock.now() if self._things else math.inf
