"""Checks which records of a retry partition are messages of this partition, by their header and their origin.

Theory. A retried message waits until home has been read past its origin, and the later messages of its key wait with
it. So an origin that home doesn't have would block its key until home has grown that far: for ever, if it is
forged. Every honest record was written when its origin had been read from home, by this owner or by an earlier one;
the same holds for a replayed dead letter. So an honest origin lies below home's end at the assignment (asked for after
the retry partition's end, so that all records up to that were written before) or below this owner's position since.

Rules
1. A record whose origin lies at or beyond both isn't readable, however well it is made. Records that aren't messages
   block nothing: requests are judged by the message that they name, a checkpoint has no origin.
2. Both ends only grow. A record that was once a message stays a message. Other records are reported and kept apart, and
   stay so, though home may have reached their origin meanwhile (`flaw`).
"""

from __future__ import annotations

from kafka_pubsub.model import StoredRecord
from kafka_pubsub.subscribe.formats import record as retry_record
from kafka_pubsub.subscribe.formats.record import NO_MESSAGES, Broken, RetryInfo, RetryRecord, Scan
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.settings import Found

__all__ = ["OriginCheck"]


class OriginCheck:
    """A reader of a retry partition's records that checks their origins."""

    def __init__(self, start: Found, offsets: Offsets) -> None:
        self._number = start.partition
        self._start = start
        self._offsets = offsets
        #: Reads the common kinds of records, faster; the caller checks whether their origin exists (`known`).
        self.scan = Scan(start.topic_id, start.partition)
        #: Below this offset an origin is known to exist, whatever has been read.
        self.known = start.home.end

    def read(self, record: StoredRecord) -> RetryRecord | Broken:
        """Returns the message, or the request, in a record."""
        start = self._start
        found = retry_record.read(record, start.topic, start.topic_id, self._number)
        if isinstance(found, Broken) or found.info.why in NO_MESSAGES or self._exists(found.info.origin):
            return found
        end = max(self.known, self._offsets.position)
        return Broken(
            f"its origin, offset {found.info.origin}, lies beyond offset {end}, up to which partition {self._number} "
            f"of {start.topic} is known"
        )

    def own(self, record: StoredRecord, info: RetryInfo) -> RetryRecord:
        """Returns the message in a record that this owner has written."""
        return RetryRecord(record, info, self._start.topic)

    def flaw(self, record: StoredRecord) -> Broken:
        """Returns the flaw of a record that was found to be unreadable."""
        found = self.read(record)
        if isinstance(found, Broken):
            return found
        return Broken(f"its origin, offset {found.info.origin}, wasn't known when it was read")

    def _exists(self, origin: int) -> bool:
        return origin < self.known or origin < self._offsets.position
