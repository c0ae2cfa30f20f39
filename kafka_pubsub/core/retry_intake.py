"""What is read from the retry partition: messages that wait, records of our own that come back, rubbish, requests.

Rules
1. A record that can't be read is told and kept apart (`stranded`); one that is gone is told and finished.
2. At the assignment a million may come: each becomes a few numbers, nobody is looked at until all have been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from kafka_pubsub.core.effects import Announce, News
from kafka_pubsub.core.events import Bodies
from kafka_pubsub.core.moves import BATCH
from kafka_pubsub.core.parked import NEVER, Entry, fate_of
from kafka_pubsub.core.retries import AHEAD, Retries
from kafka_pubsub.core.retry_record import REQUESTS, Broken, RetryInfo, RetryRecord, Why
from kafka_pubsub.model import StoredRecord

__all__ = ["Intake"]

#: Bodies of a key that are kept when they come by, if its first message is due within so many seconds, or when somebody
#: says so. What waits for longer is read again: a million that wait for an hour would fill the room for nothing.
NEAR = 16
SOON = 60.0


class Intake:
    """Takes in what was read."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        # Of all that only wait behind others; the number and the origin don't matter.
        self._followers = fate_of(retries.fates.entry(RetryInfo("", 0, 0, why=Why.BACKLOG), 0))

    def fetched(self, records: Sequence[StoredRecord], now: float) -> None:
        """Records of the retry partition were read, ours and others'."""
        retries = self._retries
        touched: dict[bytes, None] = {}
        receive, culprit = retries.books.receive, retries.suspects.culprit
        hurry = not retries.caught_up and not retries.transit
        for record in records:
            offset = cast("int", record.offset())
            if not receive(offset):
                continue
            if hurry and offset != culprit and self._park_quickly(record, offset):
                continue
            found = retries.origins.read(record)
            if isinstance(found, Broken):
                self._unreadable(record, offset, found)
            elif offset == culprit:
                retries.crashed(found, now)
            elif found.info.why in REQUESTS:
                retries.releasing[offset] = found
            else:
                self._park(found, touched, now)
        if retries.caught_up:
            retries.settle_all(touched, now)

    def _park_quickly(self, record: StoredRecord, offset: int) -> bool:
        """Parks a message of a key that is parked already, without its body; False if it deserves a closer look."""
        retries = self._retries
        line = retries.parking.lines.get(record.key())  # type: ignore[arg-type]  # there is no line of no key
        if line is None:
            return False
        headers = record.headers()
        origin = retries.origins.follower(headers)
        if origin >= 0 and line.follow(origin, offset, self._followers):
            return True
        found = retries.origins.scan(headers)
        if found is None:
            return False
        line.add(retries.fates.entry(found, offset))
        return True

    def _park(self, record: RetryRecord, touched: dict[bytes, None], now: float) -> None:
        retries = self._retries
        entry, key = retries.fates.entry(record.info, record.retry_offset), retries.key(record)
        if key is None:
            retries.parking.loose.add(entry)
            if len(retries.parking.loose) <= BATCH and _is_near(entry, now):
                retries.bodies.offer(record)
            return
        retries.landed(record, key)
        line = retries.park(key, entry)
        first = entry if len(line) == 1 else line.peek() if len(line) <= NEAR else None
        if first is not None and _is_near(first, now):
            retries.bodies.offer(record)
        touched[key] = None

    def _unreadable(self, record: StoredRecord, offset: int, broken: Broken) -> None:
        retries = self._retries
        retries.news.append(Announce(News.BROKEN, f"offset {offset}: {broken.reason}"))
        retries.stranded[offset] = record if len(retries.stranded) < AHEAD else None

    def bodies(self, event: Bodies, now: float) -> None:
        """What was asked for."""
        retries = self._retries
        touched: dict[bytes, None] = {}
        for offset in event.missing:
            self._gone(offset, touched)
        for record in event.records:
            found, offset = retries.origins.read(record), record.offset() or 0
            if isinstance(found, Broken):
                retries.bodies.forget(offset)
                if offset in retries.stranded:
                    retries.stranded[offset] = record
            elif offset in retries.loose_wanted:
                retries.bodies.forget(offset)
                retries.loose.append((retries.loose_wanted.pop(offset), found))
            else:
                retries.bodies.offer(found)
                if (key := retries.key(found)) is not None:
                    touched[key] = None
        retries.bodies.answered()
        retries.settle_all(touched, now)

    def _gone(self, offset: int, touched: dict[bytes, None]) -> None:
        """Retention has eaten a record, or somebody has deleted it."""
        retries = self._retries
        asked, key = retries.bodies.missing(offset)
        if not asked or retries.books.finished(offset):
            return
        retries.news.append(Announce(News.GONE, f"offset {offset}"))
        lines = retries.parking.lines
        for each in list(lines) if key is None else [key] if key in lines else []:
            for entry in _at(lines[each], offset):
                lines[each].remove(entry)
                touched[each] = None
        for entry in _at(retries.parking.loose, offset):
            retries.parking.loose.remove(entry)
        retries.loose_wanted.pop(offset, None)
        retries.stranded.pop(offset, None)
        retries.books.finish(offset)


def _is_near(entry: Entry, now: float) -> bool:
    return entry.due <= now + SOON or entry.due == NEVER


def _at(some: Iterable[Entry], offset: int) -> list[Entry]:
    return [entry for entry in some if entry.offset == offset]
