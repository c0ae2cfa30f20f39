"""Which of several records of the same message counts, where the positions are older than the records.

The broker may have forgotten a group's offsets. Then an owner goes on from the last checkpoint, and a message that has
moved since has a record at home and one or more in the retry partition. The newest record counts: the others are
finished, those at home when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.key_line import Entry, outdated
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.parked_keys import ParkedKeys
from kafka_pubsub.subscribe.partition.settings import Found

__all__ = ["Copies"]


class Copies:
    """The messages that waited at the assignment and may have older records; `ordered`: whether keys set an order."""

    def __init__(self, start: Found, offsets: Offsets, parking: ParkedKeys, *, ordered: bool) -> None:
        #: Whether home's records may still have newer copies in the retry partition.
        self.possible = start.older
        self._home_end = start.home.end
        self._offsets, self._parking, self._ordered = offsets, parking, ordered
        #: The origins of the copies without a key.
        self._loose: set[int] = set()

    @property
    def known(self) -> bool:
        """Whether home was read as far as its records may have copies."""
        return not self.possible or self._offsets.position >= self._home_end

    def take_outdated(self) -> list[Entry]:
        """Takes the records that don't count out of the index, once the retry partition was read; returns them."""
        if not self.possible:
            return []
        found, lines, loose = list[Entry](), self._parking.lines, self._parking.loose
        for key in lines:
            if lines.count(key) > 1:
                for entry in outdated(lines.entries(key)):
                    lines.remove(key, entry)
                    found.append(entry)
        for entry in outdated(sorted(loose)):
            loose.remove(entry)
            found.append(entry)
        self._loose = {entry.origin for entry in loose}
        return found

    def without(self, records: Sequence[Record]) -> Sequence[Record]:
        """Returns home's records without those of which a newer copy waits; these are finished."""
        old = [record for record in records if record.offset() in self._loose or self._waits(record)]
        if self.known:
            self.possible, self._loose = False, set()
        if not old:
            return records
        self._offsets.finish(old)
        gone = {record.offset() for record in old}
        return [record for record in records if record.offset() not in gone]

    def _waits(self, record: Record) -> bool:
        key, lines = record.key() if self._ordered else None, self._parking.lines
        return key is not None and lines.first_of(key, record.offset()) is not None
