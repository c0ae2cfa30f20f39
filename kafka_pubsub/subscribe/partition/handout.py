"""Hands out messages of parked keys, and takes back those that weren't begun.

Theory. The next message of a parked key may be home's (published before what is parked) or the retry partition's.
Either way a lease runner gets it, and the key is blocked in `queues` by another reason until that lease runner
has ended. A run goes on as long as messages follow that were never delivered, are due, and are in memory.

Rules
1. A message that must not start unnoted (`crash_suspects`) doesn't go before its note is stored; a suspect goes alone.
2. A message whose attempts are used up isn't handed out: when its turn comes it is dead-lettered (`moves`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import methodcaller
from typing import NamedTuple, cast

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats.record import RetryRecord
from kafka_pubsub.subscribe.partition.key_line import NEVER, Entry, parts_of
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.retry_state import RetryState

__all__ = ["Handout", "Taken"]


_offset = methodcaller("offset")


class Taken(NamedTuple):
    """The content of a lease that is to be made; `entries` None: it comes from home."""

    key: bytes | None
    records: Sequence[Record]
    entries: Sequence[Entry] | None = None


class Handout:
    """The handout of messages that wait in the retry partition."""

    def __init__(self, retries: RetryState, queues: KeyQueues, offsets: Offsets) -> None:
        self._retries = retries
        self._parking, self._bodies = retries.parking, retries.bodies
        self._suspects, self._home_suspects = retries.retry.suspects, retries.home.suspects
        self._queues = queues
        self._offsets = offsets

    def origin_of(self, key: bytes) -> int | None:
        """Returns the origin of a key's next message if that may be handed out, wherever it waits."""
        queue = self._queues.queues.get(key)
        if key in self._parking.lines:
            return self._parking.origin_of(key)
        return queue[0].offset() if queue and key not in self._queues.blocked else None

    def _take_only(self, key: bytes, now: float) -> Taken | None:
        if (origin := self.origin_of(key)) is None:
            return None
        is_parked = key in self._parking.lines
        if not is_parked:
            self._queues.park(key)  # its entry among the keys that are ready is void now
        if (taken := self._take_keyed(origin, key, 1, now)) is None and not is_parked:
            self._queues.unpark(key)
        return taken

    def take(self, limit: int, run: int, now: float, key: bytes | None = None) -> Iterator[Taken]:
        """Yields up to `limit` runs, the smallest origin first; the caller makes a lease of each before the next.

        `key`: yields the next message of this key alone, also where the key isn't parked.
        """
        retries = self._retries
        if key is not None:
            yield from filter(None, [self._take_only(key, now)] if limit else [])
            return
        for _ in range(limit):
            probing = retries.outage.fresh
            fresh = self._parking.first_fresh() if probing else None
            first = fresh or self._parking.first()
            earlier = bool(retries.loose) and (first is None or retries.loose[0][0].origin < first[0])
            if retries.loose and fresh is None and (probing or earlier):
                taken = self._take_loose()
            elif first is None:
                return
            else:
                taken = self._take_keyed(*first, run, now)
            if taken is None:
                return
            yield taken

    def gather(self, most: int, now: float) -> tuple[list[Record], list[bytes | None]]:
        """Takes some `most` records that may be handed out, in order of origin; returns them and the keys they hold.

        The records of home that wait behind a key's parked messages go along. None of these records has to be noted.
        """
        retries, records = self._retries, list[Record]()
        keys: list[bytes | None] = []
        lines, bodies = self._parking.lines, self._bodies
        while retries.loose and len(records) < most and not self._is_noted(retries.loose[0][0]):
            records.append(retries.loose.popleft()[1])
        if records:
            keys.append(None)
        while len(records) < most and (first := self._parking.first()) is not None:
            origin, key = first
            front = lines.front(key)
            if front is not None and self.is_noted(front[1], parts_of(front[3])[1]):
                break
            if front is not None and origin >= front[0]:
                body = bodies.kept.get(front[1])
                if body is not None and lines.take_only(key):
                    records.append(body)
                    bodies.take(front[1])
                else:
                    records += self._take_parked(key, lines.peek(key), most, now).records
            if self._queues.queues.get(key):
                records += self._take_home(key, lines.peek(key), most).records
            keys.append(key)
            self._hold(key)
        records.sort(key=_offset)
        return records, keys

    def _take_loose(self) -> Taken | None:
        entry, record = self._retries.loose[0]
        if self._must_wait(entry):
            return None
        self._retries.loose.popleft()
        return Taken(None, [record], [entry])

    def _take_keyed(self, origin: int, key: bytes, run: int, now: float) -> Taken | None:
        entry = self._parking.lines.peek(key)
        if entry is None or origin < entry.origin:
            taken = self._take_home_with_care(origin, key, entry, run)
        elif self._must_wait(entry):
            taken = None
        else:
            taken = self._take_parked(key, entry, run, now)
        if taken is not None:
            self._hold(key)
        return taken

    def _hold(self, key: bytes) -> None:
        self._parking.unsettle(key)
        self._queues.block(key)

    def _must_wait(self, entry: Entry) -> bool:
        """Returns whether the message must be noted, and there is no room for the note."""
        return self._is_noted(entry) and not self._suspects.takes(entry.offset)

    def is_noted(self, offset: int, crashes: int) -> bool:
        """Returns whether a message of that retry offset must not start unnoted (rule 1)."""
        return crashes > 0 or self._suspects.concerns(offset)

    def _is_noted(self, entry: Entry) -> bool:
        return self.is_noted(entry.offset, entry.crashes)

    def _take_home_with_care(self, origin: int, key: bytes, entry: Entry | None, run: int) -> Taken | None:
        suspects = self._home_suspects
        if suspects.concerns(origin):
            if not suspects.takes(origin):
                return None
            run = min(run, suspects.together(origin))
        return self._take_home(key, entry, run)

    def _take_home(self, key: bytes, entry: Entry | None, run: int) -> Taken:
        moving = self._parking.moving.get(key, ())
        stop = self._retries.followers.next_in(self._queues.queues.get(key, ()))
        below = min([*moving, NEVER if entry is None else entry.origin, NEVER if stop is None else stop])
        return Taken(key, self._queues.take_from(key, run, below))

    def _take_parked(self, key: bytes, entry: Entry | None, run: int, now: float) -> Taken:
        lines, bodies = self._parking.lines, self._bodies
        records: list[Record] = []
        entries: list[Entry] = []
        noted = entry is not None and self._is_noted(entry)
        if noted and entry is not None:
            run = 1 if entry.crashes else min(run, self._suspects.together(entry.offset))
        while entry is not None and (body := bodies.take(entry.offset)) is not None:
            lines.drop_first(key)
            records.append(body)
            entries.append(entry)
            entry = lines.peek(key)
            if len(records) >= run or entry is None or self._is_noted(entry) != noted:
                break
            if not entry.never_failed or entry.due > now or entry.origin >= self._below(key):
                break
            body = bodies.kept.get(entry.offset)
            if body is None or not self._retries.followers.goes_along(body):
                break
        return Taken(key, records, entries)

    def _below(self, key: bytes) -> int:
        """Returns the origin below which the key's parked messages may follow each other, with no other between."""
        queue, moving = self._queues.queues.get(key, []), self._parking.moving.get(key, ())
        lowest: int = min([self._offsets.position, *moving, *(each.offset() for each in queue[:1])])
        return lowest

    def finish(self, records: Iterable[Record]) -> None:
        """Finishes these acked records."""
        self._retries.finish([cast("RetryRecord", record).retry_offset for record in records])

    def give_back(self, lease: Lease, records: Iterable[Record]) -> None:
        """Returns records that were never begun to where they waited."""
        entries = {entry.offset: entry for entry in lease.entries or ()}
        for record in cast("Iterable[RetryRecord]", records):
            self.put_back(record, entries[record.retry_offset], lease.key)

    def put_back(self, record: RetryRecord, entry: Entry, key: bytes | None) -> None:
        """Returns a record that was never begun to the place where it waited."""
        if key is None:
            self._retries.loose.appendleft((entry, record))
        else:
            self._parking.lines.add(key, entry)
            self._bodies.keep(record)
