"""Bodies of parked messages: a few at hand, the others read from the retry partition when their turn comes.

Rules
1. What came by is kept while there is room (`max_bytes`); what was asked for is kept in any case: somebody is due.
2. So many reads are on the way at most, in batches, lowest first: each costs a seek, and neighbours come together.
"""

from __future__ import annotations

from kafka_pubsub.core.retry_record import RetryRecord
from kafka_pubsub.errors import InvariantViolated

__all__ = ["MAX_BYTES", "Bodies"]

#: Bytes of bodies that one partition keeps at hand: some thousand messages of a kilobyte.
MAX_BYTES = 4 * 1024 * 1024
#: Bodies asked for at once: a second of work for most handlers, and 500 KB of one-kilobyte messages.
READS = 512


class Bodies:
    """The bodies at hand of one retry partition, by retry offset."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self.kept: dict[int, RetryRecord] = {}
        self.size = 0
        self._wanted: set[int] = set()
        self._asked: set[int] = set()

    def offer(self, record: RetryRecord) -> bool:
        """Keeps it if there is room, or if it was asked for."""
        offset = record.retry_offset
        asked = offset in self._asked or offset in self._wanted
        if not asked and self.size + len(record) > self._max_bytes:
            return False
        self._asked.discard(offset)
        self._wanted.discard(offset)
        if offset not in self.kept:
            self.kept[offset] = record
            self.size += len(record)
        return True

    def take(self, offset: int) -> RetryRecord | None:
        """The body; it isn't kept any longer."""
        record = self.kept.pop(offset, None)
        if record is not None:
            self.size -= len(record)
        return record

    def want(self, offset: int) -> None:
        """Its turn comes: read it if it isn't at hand."""
        if offset not in self.kept and offset not in self._asked:
            self._wanted.add(offset)

    def forget(self, offset: int) -> None:
        """Nobody needs it any more."""
        self._wanted.discard(offset)
        self._asked.discard(offset)
        self.take(offset)

    def requests(self) -> list[int]:
        """What to read now, lowest first; each is answered by `offer` or `missing`."""
        if not self._wanted or len(self._asked) * 2 > READS:
            return []
        some = sorted(self._wanted)[: READS - len(self._asked)]
        self._wanted.difference_update(some)
        self._asked.update(some)
        return some

    def missing(self, offset: int) -> bool:
        """There is no such record any more; True if it was asked for."""
        asked = offset in self._asked
        self._asked.discard(offset)
        return asked

    def unanswered(self) -> None:
        """What was asked for won't come: the reader failed. It is asked for again."""
        self._wanted |= self._asked
        self._asked.clear()

    @property
    def waiting(self) -> bool:
        """Whether there is something to ask for."""
        return bool(self._wanted) and len(self._asked) * 2 <= READS

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if self.size != sum(map(len, self.kept.values())):
            raise InvariantViolated(f"{self.size} bytes of bodies booked, not what is kept")
        if self._wanted & self._asked or (self._wanted | self._asked) & self.kept.keys():
            raise InvariantViolated("a body is asked for twice, or though it is at hand")
        if len(self._asked) > READS:
            raise InvariantViolated(f"{len(self._asked)} bodies asked for at once")
