"""The waits of an idle stream's threads: an idle stream must cost next to nothing.

Theory. A stream is idle when no callback runs, nothing waits for a commit, and nothing can be handed out. Then only
three things can happen: a record comes, which ends a read at once; something becomes due, at a time that is known; or
another thread makes a request, and wakes the runner. So both threads may wait for longer than while they work.

Rules
1. A stream is idle only `AFTER` seconds after it was last busy: a message that comes soon finds both threads awake.
2. The runner sweeps often enough to see that the process stood still (`clocks.AWAY`).
3. A close waits for the read that is under way, since nothing else ends it.
4. A fetcher that runs inline does the runner's work while the runner sleeps. When that run has ended, the runner must
   know that the stream isn't idle any more: commits are due within their interval.
"""

from __future__ import annotations

import contextlib
from queue import Empty, SimpleQueue

__all__ = ["AFTER", "READ_WAIT", "TICK_WAIT", "IdleWaits", "WakeUp"]

AFTER = 1.0
#: Seconds between two sweeps of an idle stream.
TICK_WAIT = 1.4
#: The most seconds that a read waits: closing an idle stream takes half of them on average.
READ_WAIT = 1.0


class WakeUp(SimpleQueue[None]):
    """Wakes a thread that sleeps, by `put`."""

    def wait(self, seconds: float) -> None:
        """Sleeps until a `put`, for `seconds` at most; several puts wake once."""
        with contextlib.suppress(Empty):
            self.get(timeout=seconds)
            while True:
                self.get_nowait()


class IdleWaits:
    """Finds out whether one stream is idle, and how long its threads may wait."""

    def __init__(self) -> None:
        self._busy_until = 0.0
        self._wake_at: float | None = None
        #: When the runner's sleep ends, if it sleeps.
        self._sleeps_until = 0.0

    def swept(self, now: float, *, busy: bool, wake_at: float | None) -> None:
        """Notes the end of a sweep; `busy`: the next one may have work though no event comes until then."""
        self._wake_at = wake_at
        if busy:
            self._busy_until = now + AFTER

    def sleep(self, now: float, tick: float) -> float:
        """Notes that the runner goes to sleep; returns for how many seconds at most."""
        wait = self._tick_wait(now, tick)
        self._sleeps_until = now + wait
        return wait

    def oversleeps(self, now: float, tick: float) -> bool:
        """Returns whether the sleeping runner would wake too late for what another thread has done (rule 4)."""
        return self._sleeps_until > now + self._tick_wait(now, tick)

    def _tick_wait(self, now: float, tick: float) -> float:
        wait = tick if now < self._busy_until else TICK_WAIT
        return wait if self._wake_at is None else min(wait, max(0.0, self._wake_at - now))

    def read_wait(self, now: float, least: float) -> float:
        """Returns the seconds that a read may wait; `least`: those of a busy stream."""
        if now < self._busy_until:
            return least
        return READ_WAIT if self._wake_at is None else max(least, min(READ_WAIT, self._wake_at - now))
