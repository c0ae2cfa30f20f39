"""How many requests a push has at a time: few at first, more while they succeed. Values without a clock or a thread.

Rules
1. It begins with `FIRST` requests at a time. When as many have succeeded as may run, twice as many may, up to the most.
2. When more have failed than succeeded since the last change, half as many may run, down to one. So an endpoint that
   fails gets fewer requests soon, and one key whose messages fail slows no other.
3. An endpoint that asks for a pause gets it: nothing begins before that time, and no later answer makes it shorter.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FIRST", "LONGEST_PAUSE", "Pace"]

#: Requests at a time at the beginning, and the failures that say something about an endpoint.
FIRST, SOME = 4, 2
#: The longest pause that an endpoint may ask for, in seconds: an hour.
LONGEST_PAUSE = 3600.0


class Pace(NamedTuple):
    """How many requests may run, `now` of `most`. Times are seconds of one clock that only goes forward."""

    most: int
    now: int
    #: The answers since the number changed.
    successes: int = 0
    failures: int = 0
    #: Nothing begins before this time.
    pause_until: float = 0.0

    @classmethod
    def first(cls, most: int) -> Pace:
        """Returns the pace of a push that begins."""
        return cls(most, min(FIRST, most))

    def may_begin(self, running: int, now: float) -> bool:
        """Returns whether one more request may begin beside those that run."""
        return running < self.now and now >= self.pause_until

    def succeeded(self) -> Pace:
        """Returns the pace after a success."""
        if self.successes + 1 < self.now:
            # For each message, so without `_replace`.
            return Pace(self.most, self.now, self.successes + 1, self.failures, self.pause_until)
        return self._replace(now=min(self.most, 2 * self.now), successes=0, failures=0)

    def failed(self) -> Pace:
        """Returns the pace after a failure."""
        failures = self.failures + 1
        if failures < SOME or failures <= self.successes:
            return self._replace(failures=failures)
        return self._replace(now=max(1, self.now // 2), successes=0, failures=0)

    def paused(self, seconds: float, now: float) -> Pace:
        """Returns the pace after the endpoint has asked for a pause."""
        until = now + min(max(0.0, seconds), LONGEST_PAUSE)
        return self._replace(pause_until=max(self.pause_until, until))
