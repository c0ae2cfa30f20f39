"""A service's clock: it goes on evenly, whatever is done to the wall clock.

Rules
1. It is set by the wall clock once, and then counts by a clock that is never set. It never goes back.
2. As long as the wall clock is within `NEAR` seconds of it, it is moved there slowly: both drift.
3. Where they are further apart it goes its own way, and says so: `apart` is by how much.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kafka_pubsub.client.clocks import steady_time
from kafka_pubsub.ports import MovableClock

__all__ = ["NEAR", "MovedClock", "ServiceClock"]

_log = logging.getLogger("kafka_pubsub.service")

#: Seconds by which a wall clock may drift before that is taken for a step.
NEAR = 0.5
#: Seconds between two looks at the wall clock, and the most that one look corrects.
_LOOK, _CORRECTS = 1.0, 0.001
#: Milliseconds that a sum of seconds may be too low, because it is a binary fraction.
_ROUNDING = 0.001
#: Seconds between two warnings.
_WARN = 60.0


class ServiceClock:
    """Milliseconds since the epoch."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady_time
    ) -> None:
        self._wall, self._steady = wall, steady
        self._offset = wall() - steady()
        self._look_at = steady() + _LOOK
        self._warn_at = float("-inf")
        self._last = 0
        #: Seconds by which the wall clock is ahead; 0 while it is near.
        self.apart = 0.0

    def now(self) -> int:
        """The time."""
        steady = self._steady()
        if steady >= self._look_at:
            self._look_at = steady + _LOOK
            self._look(steady)
        self._last = max(self._last, int((steady + self._offset) * 1000))
        return self._last

    def _look(self, steady: float) -> None:
        ahead = self._wall() - (steady + self._offset)
        if abs(ahead) <= NEAR:
            self.apart = 0.0
            self._offset += max(-_CORRECTS, min(_CORRECTS, ahead))
            return
        self.apart = ahead
        if steady >= self._warn_at:
            self._warn_at = steady + _WARN
            _log.warning(
                "the wall clock was set: it is %.1f s %s of this service, which goes on by its own; restart it once "
                "the wall clock is right",
                abs(ahead),
                "ahead" if ahead > 0 else "behind",
            )


class MovedClock(ServiceClock):
    """The clock of a service in a cluster whose time a test moves."""

    def __init__(self, moved: MovableClock) -> None:
        self._moved = moved
        self.apart = 0.0

    def now(self) -> int:
        """The time."""
        return int(self._moved.now() * 1000 + _ROUNDING)
