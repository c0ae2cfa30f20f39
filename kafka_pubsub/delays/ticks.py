"""When a router appends a tick: a record without content, which lets the time of the log go on while nothing comes in.

Theory. A router must know when the leader's clock reaches the next key. It reckons that clock on from the newest stamp,
by a clock of its own that is never set. A stamp is known to be new if it is the answer to a tick, or if it is further
than the reckoned clock.

Rules
1. The first tick is wanted at once: a new router doesn't know how old the last stamp is. Otherwise a message that was
   due while no router ran would be late by as much.
2. The next one is wanted when the reckoned clock reaches the next key, but `beat` after the last one at most: a
   broker's clock may have been set. It is reckoned from that record's own stamp. Reckoned from the time of the log, a
   clock that was set back would get a tick each round trip until it has caught up.
3. None is wanted while one is on its way, nor before the last stored one was read: an open transaction may hide it.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TICK_PACE", "TickPace", "Ticks"]


class TickPace(NamedTuple):
    """How often ticks are wanted, in milliseconds."""

    #: Between two ticks at most, while something waits: as late is a message where a broker's clock was set.
    beat: int = 10_000
    #: A tick that has no answer by then counts as lost.
    lost: int = 1000


TICK_PACE = TickPace()


class Ticks:
    """The ticks of one partition."""

    def __init__(self, pace: TickPace) -> None:
        self._pace = pace
        # When a tick was asked for that has no answer; None: none is on its way.
        self._asked: int | None = None
        # A stamp, and when it was new; None: no tick was answered yet.
        self._known: tuple[int, int] | None = None
        # The offset behind the last tick that was answered, and the offset up to which ingest was read.
        self._behind = self._read = 0

    @property
    def pending(self) -> bool:
        """Whether a tick is on its way, or is stored and wasn't read yet."""
        return self._asked is not None or self._read < self._behind

    def follow(self, stamp: int | None, read: int, now: int) -> None:
        """Takes the last stamp that was read, and up to which offset ingest was read."""
        self._read = read
        if self._known is not None and stamp is not None and stamp - now > self._known[0] - self._known[1]:
            self._known = stamp, now

    def next_at(self, key: int | None) -> int | None:
        """Returns when a tick is wanted, if the next key has this time (None: any tick helps); None: not now."""
        if self._read < self._behind:
            return None
        if self._asked is not None:
            return self._asked + self._pace.lost
        if key is None or self._known is None:
            return 0
        stamp, when = self._known
        return when + max(1, min(key - stamp, self._pace.beat))

    def ask(self, now: int) -> None:
        """A tick is appended now."""
        self._asked = now

    def answer(self, offset: int, stamp: int, now: int) -> None:
        """A tick is stored, with the broker's time."""
        self._asked, self._known, self._behind = None, (stamp, now), offset + 1
