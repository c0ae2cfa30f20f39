"""Bodies of parked messages: a few in memory, the others read from the retry partition when they are due.

Rules
1. A body that was read anyway is kept while there is room (`max_bytes`, the objects that hold it included). A body that
   was asked for is always kept: its message is due.
2. A single request is unanswered at a time, lowest offsets first: each costs a seek, and neighbours come together.
"""

from __future__ import annotations

from collections.abc import Sized

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.subscribe.formats.record import RetryRecord
from kafka_pubsub.subscribe.partition.settings import RECORD_OVERHEAD

__all__ = ["MAX_BYTES", "Bodies"]

#: Bytes of bodies that a partition keeps in memory: some thousand messages of a kilobyte.
MAX_BYTES = 4 * 1024 * 1024
#: Bodies asked for at once: a second of work for most callbacks, and 500 KB of one-kilobyte messages.
READS = 512


def _cost(record: Sized) -> int:
    return len(record) + RECORD_OVERHEAD


class Bodies:
    """The bodies of a retry partition that are in memory, by retry offset."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self.kept: dict[int, RetryRecord] = {}
        self.size = 0
        #: Offsets to be read and being read, with the key that waits; None: no key does, or it isn't known.
        self.wanted: dict[int, bytes | None] = {}
        self._asked: dict[int, bytes | None] = {}
        # Whether a request is unanswered, even if its bodies aren't needed any more.
        self._reading = False

    def offer(self, record: RetryRecord) -> None:
        """Keeps the record if there is room, or if its body was asked for."""
        offset, cost = record.retry_offset, _cost(record)
        if self.size + cost <= self._max_bytes or offset in self._asked or offset in self.wanted:
            self._keep(record, offset, cost)

    def has_room(self, record: Sized) -> bool:
        """Returns whether the body of such a record may be kept without a request."""
        return self.size + _cost(record) <= self._max_bytes

    def keep(self, record: RetryRecord) -> None:
        """Keeps the record."""
        self._keep(record, record.retry_offset, _cost(record))

    def _keep(self, record: RetryRecord, offset: int, cost: int) -> None:
        if self._asked or self.wanted:
            self._asked.pop(offset, None)
            self.wanted.pop(offset, None)
        if offset not in self.kept:
            self.kept[offset] = record
            self.size += cost

    def take(self, offset: int) -> RetryRecord | None:
        """Returns the record, which is no longer kept."""
        record = self.kept.pop(offset, None)
        if record is not None:
            self.size -= _cost(record)
        return record

    def want(self, offset: int, key: bytes | None = None) -> None:
        """Asks for the body unless the body is in memory: its message is due."""
        if offset not in self.kept and offset not in self._asked:
            self.wanted[offset] = key

    def forget(self, offset: int) -> None:
        """Forgets a body that isn't needed any more."""
        self.wanted.pop(offset, None)
        self._asked.pop(offset, None)
        self.take(offset)

    @property
    def reading(self) -> bool:
        """Whether a request is unanswered."""
        return self._reading

    @property
    def waiting(self) -> bool:
        """Whether there is something to ask for now."""
        return bool(self.wanted) and not self._reading

    def requests(self) -> list[int]:
        """Returns the offsets to read now, lowest first; none while a request is unanswered."""
        if not self.waiting:
            return []
        some = sorted(self.wanted)[:READS]
        self._asked = {offset: self.wanted.pop(offset) for offset in some}
        self._reading = True
        return some

    def missing(self, offset: int) -> tuple[bool, bytes | None]:
        """Takes note that such a record is gone; returns whether its body was asked for, and for which key."""
        asked = offset in self._asked
        return asked, self._asked.pop(offset, None)

    def answered(self) -> None:
        """Ends the request; bodies that haven't come are asked for again."""
        self.wanted |= self._asked
        self._asked = {}
        self._reading = False

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if self.size != sum(map(_cost, self.kept.values())):
            raise InvariantViolated(f"{self.size} bytes of bodies booked, not what is kept")
        places = [self.wanted.keys(), self._asked.keys(), self.kept.keys()]
        if sum(map(len, places)) != len(set().union(*places)):
            raise InvariantViolated("a body is asked for twice, or though it is at hand")
