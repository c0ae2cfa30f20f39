"""Takes in the records of the retry partition: messages, moves read back, checkpoints, unreadable records, requests.

Rules
1. A record that can't be read is reported and kept apart (`unreadable`); a record that is gone is reported and
   finished.
2. At the assignment a million may come: each becomes a few numbers, none is settled until all have been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from kafka_pubsub.model import StoredRecord
from kafka_pubsub.subscribe.formats.record import REQUESTS, Broken, RetryRecord, Why, is_checkpoint
from kafka_pubsub.subscribe.partition.effects import Announce, News
from kafka_pubsub.subscribe.partition.events import Bodies
from kafka_pubsub.subscribe.partition.key_line import (
    NEVER,
    NEVER_TICKS,
    Entry,
    KeyLine,
    entry_of,
    flags_of,
    ticks,
)
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.moves import BATCH
from kafka_pubsub.subscribe.partition.retry_state import AHEAD, RetryState

__all__ = ["Intake"]

#: Messages of a key whose bodies are kept when they are read anyway, and the seconds within which its first message
#: must be due. Later ones are read again: a million that wait for an hour would fill the room for nothing.
NEAR = 16
SOON = 60.0
#: Due time and flags of a message that only waits behind others of its key.
_FOLLOWS = 0, flags_of(1, 0, Why.BACKLOG)


class Intake:
    """The intake of records that were read from the retry partition."""

    def __init__(self, retries: RetryState, queues: KeyQueues, *, ordered: bool) -> None:
        self._retries = retries
        self._parking, self._bodies, self._suspects = retries.parking, retries.bodies, retries.retry.suspects
        self._queues = queues
        self._ordered = ordered

    def fetched(self, records: Sequence[StoredRecord], now: float) -> None:
        """Takes in records of the retry partition, ours and those of other programs."""
        retries = self._retries
        touched: dict[bytes, None] = {}
        culprit = self._suspects.culprit
        hurry = self._ordered and not retries.caught_up and not retries.transit
        for record in self._deserving(records, now) if hurry else self._news(records):
            offset = cast("int", record.offset())
            if retries.transit and (read_back := retries.read_back(record)) is not None:
                self._park(*read_back, touched, now)
                continue
            found = retries.origins.read(record)
            if isinstance(found, Broken):
                self._unreadable(record, offset, found)
            elif offset == culprit:
                retries.crashed(found, now)
            elif found.info.why is Why.CHECKPOINT:
                retries.finished_runs.finish(offset)
            elif found.info.why in REQUESTS:
                retries.releasing[offset] = found
            else:
                self._park(found, retries.key(found), touched, now)
        if retries.caught_up:
            retries.settle_all(touched, now)

    def _news(self, records: Sequence[StoredRecord]) -> Iterator[StoredRecord]:
        """Yields the records that weren't finished before they were read."""
        receive = self._retries.finished_runs.receive
        for record in records:
            if not self._is_passed(record) and receive(cast("int", record.offset())):
                yield record

    def _is_passed(self, record: StoredRecord) -> bool:
        """Passes over a checkpoint's record, a hole like a transaction's marker; returns whether it did."""
        if record.key() is not None or not is_checkpoint(record.headers() or ()):
            return False
        self._retries.finished_runs.advance(cast("int", record.offset()) + 1)
        return True

    def _deserving(self, records: Sequence[StoredRecord], now: float) -> Iterator[StoredRecord]:
        """Parks the messages whose bodies aren't kept; yields the other new records.

        A million may come, and nothing begins before that: another call for each costs a tenth of a second.
        """
        retries = self._retries
        lines, queues, scan = self._parking.lines, self._queues.queues, retries.origins.scan
        receive, culprit, known = retries.finished_runs.receive, self._suspects.culprit, retries.origins.known
        line_of, due_of, has_room = lines.get, retries.schedules.due, self._bodies.has_room
        soon = ticks(now + SOON)
        for record in records:
            key: bytes | None = record.key()
            offset: int = record.offset()  # type: ignore[assignment]  # what was read has one
            if key is None and self._is_passed(record):
                continue
            if not receive(offset):
                continue
            if key is None or offset == culprit or key in queues:
                yield record
                continue
            line, headers = line_of(key), record.headers()
            if isinstance(line, KeyLine):
                origin = scan.follower(headers)
                if 0 <= origin < known and line.follow(origin, offset, _FOLLOWS):
                    continue
            found = scan.read(headers)
            if found is None or found[0] >= known:
                yield record
                continue
            origin, attempt, crashes, wall, why = found
            due = ticks(due_of(wall, why, now)) if wall else 0
            schedule = due, flags_of(attempt, crashes, why)
            if isinstance(line, KeyLine):
                line.add(entry_of(origin, offset, schedule))
            elif line is None and (due <= soon or due == NEVER_TICKS) and has_room(record):
                yield record
            else:
                lines.append(key, line, origin, offset, schedule)

    def _park(self, record: RetryRecord, key: bytes | None, touched: dict[bytes, None], now: float) -> None:
        retries, info = self._retries, record.info
        if key is None:
            entry = retries.schedules.entry(info, record.retry_offset, now)
            loose = self._parking.loose
            loose.add(entry)
            if len(loose) <= BATCH and _is_near(entry.due, now):
                self._bodies.offer(record)
            return
        due = retries.schedules.due(info.due, info.why, now)
        schedule = ticks(due), flags_of(info.attempt, info.crashes, info.why)
        retries.park(key)
        alone = self._parking.lines.put(key, info.origin, record.retry_offset, schedule)
        if _is_near(due, now) if alone else self._is_first_near(key, now):
            self._bodies.offer(record)
        touched[key] = None

    def _is_first_near(self, key: bytes, now: float) -> bool:
        """Returns whether the key's first message is due soon, and few wait behind it."""
        lines = self._parking.lines
        first = lines.peek(key) if lines.count(key) <= NEAR else None
        return first is not None and _is_near(first.due, now)

    def _unreadable(self, record: StoredRecord, offset: int, broken: Broken) -> None:
        retries = self._retries
        retries.news.append(Announce(News.BROKEN, f"offset {offset}: {broken.reason}"))
        retries.unreadable[offset] = record if len(retries.unreadable) < AHEAD else None

    def bodies(self, event: Bodies, now: float) -> None:
        """Takes in the bodies that were asked for."""
        retries, bodies = self._retries, self._bodies
        touched: dict[bytes, None] = {}
        for offset in event.missing:
            self._gone(offset, touched)
        for record in event.records:
            found, offset = retries.origins.read(record), record.offset() or 0
            if isinstance(found, Broken):
                bodies.forget(offset)
                if offset in retries.unreadable:
                    retries.unreadable[offset] = record
            elif offset in retries.loose_wanted:
                bodies.forget(offset)
                retries.loose.append((retries.loose_wanted.pop(offset), found))
            else:
                bodies.offer(found)
                if (key := retries.key(found)) is not None:
                    touched[key] = None
        bodies.answered()
        retries.settle_all(touched, now)

    def _gone(self, offset: int, touched: dict[bytes, None]) -> None:
        """Finishes a record that retention or a client has deleted."""
        retries = self._retries
        asked, key = self._bodies.missing(offset)
        if not asked or retries.finished_runs.finished(offset):
            return
        retries.news.append(Announce(News.GONE, f"offset {offset}"))
        lines, loose = self._parking.lines, self._parking.loose
        if key is not None:
            for entry in _at(lines.entries(key), offset):
                lines.remove(key, entry)
                touched[key] = None
        for entry in _at(loose, offset):
            loose.remove(entry)
        retries.loose_wanted.pop(offset, None)
        retries.unreadable.pop(offset, None)
        pending = retries.dead_letters.take_back(offset)
        if pending is not None and pending.key is not None:
            self._parking.arrives(pending.key, pending.origin)
            touched[pending.key] = None
        retries.finished_runs.finish(offset)
        retries.followers.leave(touched)


def _is_near(due: float, now: float) -> bool:
    return due <= now + SOON or due == NEVER


def _at(some: Iterable[Entry], offset: int) -> list[Entry]:
    return [entry for entry in some if entry.offset == offset]
