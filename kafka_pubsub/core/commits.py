"""When to commit what: one commit in flight, and the next one not before its time.

Rules
1. I2: the position committed is `offsets.committable`; the ack map says what is finished above it.
2. No second commit before the answer to the first. A refused one leaves its content to the next.
3. Commits are up to `COMMIT_INTERVAL` apart, except the last word at a revoke.
"""

from __future__ import annotations

from kafka_pubsub.core import ack_map
from kafka_pubsub.core.ack_map import AckMap
from kafka_pubsub.core.effects import Commit
from kafka_pubsub.core.offsets import Offsets
from kafka_pubsub.errors import InvariantViolated

__all__ = ["COMMIT_INTERVAL", "Commits"]

#: Seconds between commits. Acks younger than this, and the milliseconds of an answer, are redelivered after a crash;
#: 200 ms are promised.
COMMIT_INTERVAL = 0.15


class Commits:
    """The commits of one partition under one ownership."""

    def __init__(self, offsets: Offsets, writer: int, stored: Commit) -> None:
        self._offsets = offsets
        self._writer = writer
        #: What the log holds: the last accepted commit, or what was there at the beginning.
        self.stored = stored
        #: Sent, and not answered yet.
        self.in_flight: Commit | None = None
        #: True when there is something to commit.
        self.dirty = False
        self._not_before = 0.0

    def due_at(self) -> float | None:
        """When the next commit is due, if one is."""
        return self._not_before if self.dirty and self.in_flight is None else None

    def due(self, now: float) -> bool:
        """Whether to commit now."""
        return self.dirty and self.in_flight is None and now >= self._not_before

    def make(self, now: float) -> Commit:
        """The commit to send; it is in flight from now on."""
        # The next multiple of the interval: partitions that are busy commit together, in one request.
        self._not_before = (now // COMMIT_INTERVAL + 1) * COMMIT_INTERVAL
        self.in_flight = self._commit(clean=False)
        self.dirty = False
        return self.in_flight

    def last_word(self) -> Commit | None:
        """The commit to send at a revoke, if there is anything to say."""
        if not self.dirty and self.in_flight is None:
            return None
        self.in_flight = self._commit(clean=True)
        self.dirty = False
        return self.in_flight

    def answered(self, *, accepted: bool) -> None:
        """The log has answered the commit in flight."""
        if self.in_flight is None:
            return
        if accepted:
            self.stored = self.in_flight
        else:
            self.dirty = True
        self.in_flight = None

    def _commit(self, *, clean: bool) -> Commit:
        position = self._offsets.committable
        runs = tuple(self._offsets.runs())
        return Commit(position, ack_map.encode(AckMap(self._writer, runs, clean), position))

    def check(self) -> None:
        """Raises `InvariantViolated` if the map has outgrown its place."""
        if len(self._commit(clean=False).metadata) > ack_map.CAPACITY:
            raise InvariantViolated("I5: the ack map doesn't fit the metadata")
