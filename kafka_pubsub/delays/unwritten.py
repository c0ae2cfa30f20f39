"""What a router has handled and not written yet: it goes to the tiers and the dead letters with more of its kind.

Theory. A transaction costs a request for each partition that it writes to. What goes home goes as soon as it is due;
what hops isn't due for a unit at least, so it waits a moment for others, and most transactions write to home topics
only. What is wanted follows from the time of the log, so no clock is needed.
"""

from __future__ import annotations

from kafka_pubsub.delays.values import Waiting

__all__ = ["PAUSE", "Unwritten"]

#: Milliseconds between two flushes, and records or bytes that don't wait for the next one.
PAUSE, _FULL, _FULL_SIZE = 100, 1000, 1024 * 1024


class Unwritten:
    """How much it is, and when it is to be written."""

    def __init__(self, pause: int) -> None:
        #: The dead letters among it, which are in no tier.
        self.dead: list[Waiting] = []
        self._count = self._size = 0
        # The time of the log at the last flush.
        self._flushed_at, self._pause = 0, pause

    def __bool__(self) -> bool:
        return self._count > 0

    @property
    def due_at(self) -> int | None:
        """The time of the log at which it is to be written; None: there is nothing."""
        return self._flushed_at + self._pause if self._count else None

    def add(self, message: Waiting) -> None:
        """A message was handled; it is in a tier that wasn't written, or among the dead letters."""
        self._count += 1
        self._size += len(message.record)

    def is_due(self, time: int) -> bool:
        """Whether it is to be written now."""
        full = self._count >= _FULL or self._size >= _FULL_SIZE
        return self._count > 0 and (full or self._flushed_at + self._pause <= time)

    def flush(self, time: int) -> list[Waiting]:
        """All is written now; returns the dead letters."""
        found, self.dead = self.dead, []
        self._flushed_at, self._count, self._size = time, 0, 0
        return found
