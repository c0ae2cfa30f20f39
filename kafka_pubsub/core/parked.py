"""Messages that wait in the retry partition, as numbers: one array for each key, a million in some forty megabytes.

Rules
1. Entries of a key are in order of (origin, retry offset). They mostly come in that order: appended, or put back in
   front. The others are sorted in when the key is looked at next.
2. Times are whole microseconds, rounded up, so that going to and fro changes nothing.
3. Messages without a key wait by themselves, kept by the second in which they are due.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator
from math import ceil, floor
from typing import NamedTuple

from kafka_pubsub.core.retry_record import Why

__all__ = ["FEW", "NEVER", "NEVER_TICKS", "Entry", "Line", "Loose", "passed", "ticks"]

#: Due at no time: until somebody releases it.
NEVER = float("inf")

_FIELDS = 4
NEVER_TICKS = 2**62
#: Microseconds; what arithmetic with floats may be wrong by.
_ERROR = 0.01
_WHY = tuple(Why)
#: Entries out of order that are put in place one by one; more are sorted.
FEW = 64


class Entry(NamedTuple):
    """One message that waits in the retry partition. `due` is in seconds of the core's clock."""

    origin: int
    offset: int
    due: float = 0.0
    attempt: int = 1
    crashes: int = 0
    why: Why = Why.NACKED

    @property
    def never_failed(self) -> bool:
        """Whether no handler has ever seen it, so that it may follow in a run."""
        return self.attempt == 1 and not self.crashes


def ticks(due: float) -> int:
    """Microseconds, rounded up: nothing is delivered before it is due."""
    return NEVER_TICKS if due == NEVER else ceil(due * 1e6 - _ERROR)


def passed(now: float) -> int:
    """The last microsecond that has come."""
    return floor(now * 1e6 + _ERROR)


def _cells(entry: Entry) -> tuple[int, int, int, int]:
    flags = entry.attempt << 16 | entry.crashes << 8 | entry.why
    return entry.origin, entry.offset, ticks(entry.due), flags


def _entry(cells: array[int], at: int) -> Entry:
    at *= _FIELDS
    origin, offset, due, flags = cells[at : at + _FIELDS]
    seconds = NEVER if due == NEVER_TICKS else due / 1e6
    return Entry(origin, offset, seconds, flags >> 16, flags >> 8 & 0xFF, _WHY[flags & 0xFF])


class Line:
    """The entries of one key."""

    __slots__ = ("_cells", "_head", "_late", "moving", "stamp")

    def __init__(self) -> None:
        self._cells = array("q")
        #: Entries before this one are gone; room for what comes back in front.
        self._head = 0
        #: Entries that came out of order.
        self._late: list[Entry] = []
        #: Origins on their way into the retry partition, or to the dead letters, and how often each: it may move on
        #: before its first transaction was answered. None: nothing moves.
        self.moving: dict[int, int] | None = None
        #: Makes older entries of the heaps void.
        self.stamp = 0

    def __len__(self) -> int:
        return len(self._cells) // _FIELDS - self._head + len(self._late)

    def add(self, entry: Entry) -> None:
        """One more message waits."""
        cells, head = self._cells, self._head
        count = len(cells) // _FIELDS
        place = (entry.origin, entry.offset)
        if count == head:
            del cells[:]
            self._head = 0
            cells.extend(_cells(entry))
        elif place > (cells[-_FIELDS], cells[1 - _FIELDS]):
            cells.extend(_cells(entry))
        elif place < (cells[head * _FIELDS], cells[head * _FIELDS + 1]):
            self._put_in_front(entry)
        else:
            self._late.append(entry)

    def _put_in_front(self, entry: Entry) -> None:
        if not self._head:
            self._head = 1 + len(self) // 8
            self._cells[0:0] = array("q", bytes(8 * _FIELDS * self._head))
        self._head -= 1
        at = self._head * _FIELDS
        self._cells[at : at + _FIELDS] = array("q", _cells(entry))

    def _sort(self) -> None:
        late, self._late = self._late, []
        cells = self._cells
        if len(late) > FEW:
            for entry in late:
                cells.extend(_cells(entry))
            places = range(self._head, len(cells) // _FIELDS)
            order = sorted(places, key=lambda at: cells[at * _FIELDS] << 64 | cells[at * _FIELDS + 1])
            ordered = array("q")
            for at in order:
                ordered.extend(cells[at * _FIELDS : (at + 1) * _FIELDS])
            self._cells, self._head = ordered, 0
            return
        for entry in late:
            at = self._find(entry.origin, entry.offset) * _FIELDS
            cells[at:at] = array("q", _cells(entry))

    def _find(self, origin: int, offset: int) -> int:
        """Where an entry is, or would be."""
        cells, low, high = self._cells, self._head, len(self._cells) // _FIELDS
        while low < high:
            middle = (low + high) // 2
            if (cells[middle * _FIELDS], cells[middle * _FIELDS + 1]) < (origin, offset):
                low = middle + 1
            else:
                high = middle
        return low

    def peek(self, at: int = 0) -> Entry | None:
        """The entry number `at` from the front."""
        if self._late:
            self._sort()
        at += self._head
        return _entry(self._cells, at) if at * _FIELDS < len(self._cells) else None

    def front(self) -> tuple[int, int, int] | None:
        """Origin, offset and due time, in ticks, of the first entry: what everybody asks for."""
        if self._late:
            self._sort()
        cells, at = self._cells, self._head * _FIELDS
        return (cells[at], cells[at + 1], cells[at + 2]) if at < len(cells) else None

    def pop(self) -> None:
        """The first entry is gone."""
        self._head += 1
        if self._head > FEW and self._head * _FIELDS * 2 > len(self._cells):
            del self._cells[: self._head * _FIELDS]
            self._head = 0

    def get(self, origin: int, offset: int) -> Entry | None:
        """That entry, if it waits here."""
        if self._late:
            self._sort()
        at = self._find(origin, offset)
        found = _entry(self._cells, at) if at * _FIELDS < len(self._cells) else None
        return found if found is not None and found[:2] == (origin, offset) else None

    def at(self, origin: int) -> Entry | None:
        """The first entry of that origin."""
        if self._late:
            self._sort()
        at = self._find(origin, -1)
        found = _entry(self._cells, at) if at * _FIELDS < len(self._cells) else None
        return found if found is not None and found.origin == origin else None

    def remove(self, entry: Entry) -> None:
        """That entry is gone; the caller has seen it by `get`."""
        at = self._find(entry.origin, entry.offset)
        if at == self._head:
            self.pop()
        else:
            del self._cells[at * _FIELDS : (at + 1) * _FIELDS]

    def __iter__(self) -> Iterator[Entry]:
        if self._late:
            self._sort()
        for at in range(self._head, len(self._cells) // _FIELDS):
            yield _entry(self._cells, at)


class Loose:
    """Messages without a key: each waits by itself. Kept by the second in which they are due, as numbers."""

    def __init__(self) -> None:
        self._count = 0
        self._seconds: list[int] = []
        self._later: dict[int, Line] = {}
        #: Those of the seconds that have begun.
        self._soon: list[tuple[int, Entry]] = []

    def __len__(self) -> int:
        return self._count

    def add(self, entry: Entry) -> None:
        """One more message waits."""
        second = ticks(entry.due) // 1_000_000
        line = self._later.get(second)
        if line is None:
            line = self._later[second] = Line()
            heapq.heappush(self._seconds, second)
        line.add(entry)
        self._count += 1

    def next_due(self) -> float | None:
        """When the next one may be due; perhaps too early, never too late."""
        times = [self._soon[0][0] / 1e6] if self._soon else []
        if self._seconds and self._seconds[0] < NEVER_TICKS // 1_000_000:
            times.append(float(self._seconds[0]))
        return min(times, default=None)

    def due(self, now: float, limit: int) -> list[Entry]:
        """Up to `limit` of those whose time has come; they are the caller's now."""
        while self._seconds and self._seconds[0] <= now:
            for entry in self._later.pop(heapq.heappop(self._seconds)):
                heapq.heappush(self._soon, (ticks(entry.due), entry))
        come: list[Entry] = []
        while self._soon and self._soon[0][0] <= passed(now) and len(come) < limit:
            come.append(heapq.heappop(self._soon)[1])
        self._count -= len(come)
        return come

    def remove(self, entry: Entry) -> bool:
        """That entry is gone; False if it doesn't wait here."""
        line = self._later.get(ticks(entry.due) // 1_000_000)
        if line is not None and (found := line.get(entry.origin, entry.offset)) is not None:
            line.remove(found)
        else:
            rest = [each for each in self._soon if each[1][:2] != entry[:2]]
            if len(rest) == len(self._soon):
                return False
            self._soon = rest
            heapq.heapify(self._soon)
        self._count -= 1
        return True

    def __iter__(self) -> Iterator[Entry]:
        for line in self._later.values():
            yield from line
        for _, entry in self._soon:
            yield entry
