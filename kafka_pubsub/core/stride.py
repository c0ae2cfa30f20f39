"""How far an owner may come in main before its next commit is stored: so far whoever takes over takes care.

Theory. A dead owner can have started what it had read, and that is what it had read at its last commit and what it read
afterwards. The latter is guessed before, by how much it has been lately, and told in the commit; and a commit is due
at once when more than that is read. So what was started beyond is what was read while that commit was under way.

Rules
1. At least `LEAST`: who is idle may find a backlog with its next read.
2. More than the last stretch: commits may be late. Who gets faster within a stretch tells what it has come to already.
3. At least as far as the owner before it may have come, for which this one would be asked if it died on the way.
"""

from __future__ import annotations

__all__ = ["LEAST", "Stride"]

#: Offsets: what one read of two partitions brings.
LEAST = 500
#: Stretches: commits may be late by half of one.
AHEAD = 1.5


class Stride:
    """The way that one partition goes between two commits. Offsets are main's."""

    def __init__(self, position: int, stretch: float, before: int = 0) -> None:
        #: Seconds between commits.
        self._stretch = stretch
        #: How far the owner before may have come.
        self._before = before
        #: Where the stretch under way began, and when.
        self._from, self._since = position, float("-inf")
        #: Offsets of a stretch.
        self._length = 0.0
        #: What the last commit says: below that offset everything may have been started.
        self.told = 0

    def look(self, position: int, now: float) -> None:
        """A commit is made by an owner that has read up to `position`."""
        way, seconds = position - self._from, now - self._since
        if seconds >= self._stretch:
            self._length = way * self._stretch / seconds
            self._from, self._since = position, now
        else:
            self._length = max(self._length, way)
        self.told = max(self._before, position + max(LEAST, round(AHEAD * self._length)))
