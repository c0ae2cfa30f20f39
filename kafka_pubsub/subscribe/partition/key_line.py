"""Messages that wait in the retry partition, as numbers: an array for each key, a million in some twenty megabytes.

Rules
1. Entries of a key are in order of (origin, retry offset). They mostly come in that order: appended, or put back in
   front. The others are sorted in when the key is looked at next.
2. Times are whole microseconds, rounded up, so that converting them to and fro changes nothing.
3. Almost all messages that wait only wait for others of their key: their due time and flags are the same, and are kept
   once. Where many differ (a replay) each has its own, which doubles the memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

from kafka_pubsub.subscribe.formats.record import RetryRecord, Why

__all__ = [
    "FEW",
    "NEVER",
    "NEVER_TICKS",
    "DueAndFlags",
    "Entry",
    "Front",
    "KeyLine",
    "entry_of",
    "flags_of",
    "outdated",
    "parts_of",
    "passed",
    "schedule_of",
    "ticks",
]

#: The due time of a message that waits until it is released.
NEVER = float("inf")
NEVER_TICKS = 2**62
#: Microseconds; the error that arithmetic with floats may have.
_ERROR = 0.01
_WHY = {why.value: why for why in Why}
#: So few aren't worth rebuilding anything: due times and flags that differ, room in front, void entries in a heap.
FEW = 64


class Entry(NamedTuple):
    """A message that waits in the retry partition. `due` is in seconds of the core's clock."""

    origin: int
    offset: int
    due: float = 0.0
    attempt: int = 1
    crashes: int = 0
    why: Why = Why.NACKED

    @classmethod
    def of(cls, record: RetryRecord) -> Entry:
        """Returns the entry under which a due record waited."""
        info = record.info
        return cls(info.origin, record.retry_offset, 0.0, info.attempt, info.crashes, info.why)

    @property
    def never_failed(self) -> bool:
        """Whether no callback has ever had the message, so that it may follow in a run."""
        return self.attempt == 1 and not self.crashes


def ticks(due: float) -> int:
    """Returns microseconds, rounded up: nothing is delivered before its due time."""
    return NEVER_TICKS if due == NEVER else ceil(due * 1e6 - _ERROR)


def passed(now: float) -> int:
    """Returns the last microsecond that has come."""
    return floor(now * 1e6 + _ERROR)


#: When an entry is due, in ticks, and its other facts as flags.
DueAndFlags = tuple[int, int]
#: Origin, offset, due time in ticks and flags.
Front = tuple[int, int, int, int]


def schedule_of(entry: Entry) -> DueAndFlags:
    """Returns the due time in ticks, and the rest as flags."""
    return ticks(entry.due), flags_of(entry.attempt, entry.crashes, entry.why)


def flags_of(attempt: int, crashes: int, why: int) -> int:
    """Returns attempt, crashes and reason as flags."""
    return attempt << 16 | crashes << 8 | why


def parts_of(flags: int) -> tuple[int, int, Why]:
    """Returns attempt, crashes and reason."""
    return flags >> 16, flags >> 8 & 0xFF, _WHY[flags & 0xFF]


def entry_of(origin: int, offset: int, schedule: DueAndFlags) -> Entry:
    """Returns the entry with that origin, offset, due time and flags."""
    due, flags = schedule
    seconds = NEVER if due == NEVER_TICKS else due / 1e6
    return Entry(origin, offset, seconds, *parts_of(flags))


#: A set of its own for each of many keys would be larger than its content.
_NONE: frozenset[tuple[int, int]] = frozenset()


class KeyLine:
    """The entries of a key."""

    __slots__ = (
        "_common",
        "_gone",
        "_head",
        "_late",
        "_places",
        "_rare",
        "_schedules",
    )

    def __init__(self) -> None:
        #: Origins and offsets in turn.
        self._places = array("q")
        #: The due time and flags that most of them share (rule 3); None: no entry that waits for others only has come.
        self._common: DueAndFlags | None = None
        #: The due time and flags of entries that differ, by offset; None: no entry does, or `_schedules` has them.
        self._rare: dict[int, DueAndFlags] | None = None
        #: The due times and flags of all entries, in their order; None: few differ.
        self._schedules: array[int] | None = None
        #: Entries before this index are gone: room for entries that come back in front.
        self._head = 0
        #: Entries that came out of order.
        self._late: list[Entry] = []
        #: Places of entries that were removed from the middle; taken out together at the next look.
        self._gone: AbstractSet[tuple[int, int]] = _NONE

    def __len__(self) -> int:
        return len(self._places) // 2 - self._head + len(self._late) - len(self._gone)

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        place = (entry.origin, entry.offset)
        if place in self._gone:
            self._tidy()
        places, head = self._places, 2 * self._head
        if len(places) == head:
            self._clear()
            self._insert(0, entry)
        elif place > (places[-2], places[-1]):
            self._insert(len(places) // 2, entry)
        elif place < (places[head], places[head + 1]):
            self._put_in_front(entry)
        else:
            self._late.append(entry)

    def follow(self, origin: int, offset: int, schedule: DueAndFlags) -> bool:
        """Adds an entry behind the others, with their due time and flags; returns False if that can't be done."""
        places = self._places
        if self._schedules is not None or self._common != schedule or len(places) == 2 * self._head:
            return False
        last = places[-2]
        if origin < last or (origin == last and offset <= places[-1]):
            return False
        places.append(origin)
        places.append(offset)
        return True

    def _clear(self) -> None:
        del self._places[:]
        self._rare = self._schedules = None
        self._head = 0

    def _insert(self, at: int, entry: Entry) -> None:
        self._places[2 * at : 2 * at] = array("q", entry[:2])
        self._learn(at, entry, 0)

    def _learn(self, at: int, entry: Entry, instead: int) -> None:
        """Keeps due time and flags of an entry that takes `instead` of a place, or of none."""
        if self._schedules is not None:
            self._schedules[2 * at : 2 * (at + instead)] = array("q", schedule_of(entry))
        else:
            self._note([entry])

    def _note(self, entries: Sequence[Entry]) -> None:
        """Keeps due time and flags of entries that have their places, while only differing entries are kept."""
        for entry in entries:
            schedule = schedule_of(entry)
            if self._common is None and entry.why is Why.BACKLOG and entry.never_failed:
                self._common = schedule
            if schedule != self._common:
                self._rare = {} if self._rare is None else self._rare
                self._rare[entry.offset] = schedule
        if self._rare is not None and len(self._rare) > FEW:
            self._widen()

    def _widen(self) -> None:
        """Gives each entry its own due time and flags, because too many differ."""
        schedules = array("q", (0, 0)) * self._head
        for at in range(self._head, len(self._places) // 2):
            schedules.extend(self._schedule_at(at))
        self._rare, self._schedules = None, schedules

    def _schedule_at(self, at: int) -> DueAndFlags:
        if self._schedules is not None:
            return self._schedules[2 * at], self._schedules[2 * at + 1]
        schedule = (
            self._common if self._rare is None else self._rare.get(self._places[2 * at + 1], self._common)
        )
        return schedule or (0, 0)  # never (0, 0): uncommon values are rare

    def _make_room(self, room: int) -> None:
        """Makes room in front for so many more entries."""
        empty = array("q", (0, 0)) * room
        self._places[0:0] = empty
        if self._schedules is not None:
            self._schedules[0:0] = empty
        self._head += room

    def _put_in_front(self, entry: Entry) -> None:
        if not self._head:
            self._make_room(1 + len(self) // 8)
        self._head -= 1
        at = self._head
        self._places[2 * at : 2 * at + 2] = array("q", entry[:2])
        self._learn(at, entry, 1)

    def _tidy(self) -> None:
        """Sorts in the entries that came out of order, and takes out entries that are gone."""
        changes: list[tuple[int, int] | Entry] = sorted([*self._late, *self._gone])
        late, self._late, self._gone = self._late, [], _NONE
        places, schedules = array("q"), array("q")
        first = last = self._find(changes[0][0], changes[0][1])
        for change in changes:
            at = self._find(change[0], change[1])
            places += self._places[2 * last : 2 * at]
            if self._schedules is not None:
                schedules += self._schedules[2 * last : 2 * at]
            last = at + 1
            if isinstance(change, Entry):
                last = at
                places.extend(change[:2])
                if self._schedules is not None:
                    schedules.extend(schedule_of(change))
        self._splice(first, last, places, schedules)
        self._trim()
        if self._schedules is None:
            self._note(late)

    def _splice(self, first: int, last: int, places: array[int], schedules: array[int]) -> None:
        """Replaces the entries from `first` to `last`; shifts the shorter side only, because a million may wait."""
        grown = len(places) // 2 - (last - first)
        if first - self._head >= len(self._places) // 2 - last:
            self._places[2 * first : 2 * last] = places
            if self._schedules is not None:
                self._schedules[2 * first : 2 * last] = schedules
            return
        if grown > self._head:
            room = grown + len(self) // 8
            self._make_room(room)
            first, last = first + room, last + room
        old, head = self._head, self._head - grown
        for stored, news in ((self._places, places), (self._schedules, schedules)):
            if stored is not None:
                stored[2 * head : 2 * (first - grown)] = stored[2 * old : 2 * first]
                stored[2 * (first - grown) : 2 * last] = news
        self._head = head

    def _find(self, origin: int, offset: int) -> int:
        """Returns where an entry is, or would be."""
        places, low, high = self._places, self._head, len(self._places) // 2
        while low < high:
            middle = (low + high) // 2
            if (places[2 * middle], places[2 * middle + 1]) < (origin, offset):
                low = middle + 1
            else:
                high = middle
        return low

    def _at(self, at: int) -> Entry | None:
        places = self._places
        if 2 * at >= len(places):
            return None
        return entry_of(places[2 * at], places[2 * at + 1], self._schedule_at(at))

    def peek(self, at: int = 0) -> Entry | None:
        """Returns the entry number `at` from the front."""
        if self._late or self._gone:
            self._tidy()
        return self._at(self._head + at)

    def front(self) -> Front | None:
        """Returns the numbers of the first entry, without making an `Entry`."""
        if self._late or self._gone:
            self._tidy()
        places, at = self._places, self._head
        return (places[2 * at], places[2 * at + 1], *self._schedule_at(at)) if 2 * at < len(places) else None

    def pop(self) -> None:
        """Removes the first entry."""
        if self._late or self._gone:
            self._tidy()
        if self._rare is not None:
            self._rare.pop(self._places[2 * self._head + 1], None)
        self._head += 1
        self._trim()

    def _trim(self) -> None:
        """Frees the room in front when this room is most of the array."""
        if self._head > FEW and 4 * self._head > len(self._places):
            del self._places[: 2 * self._head]
            if self._schedules is not None:
                del self._schedules[: 2 * self._head]
            self._head = 0

    def get(self, origin: int, offset: int) -> Entry | None:
        """Returns that entry, if it waits here."""
        if self._late:
            self._tidy()
        found, place = self._at(self._find(origin, offset)), (origin, offset)
        return found if found is not None and found[:2] == place and place not in self._gone else None

    def at(self, origin: int) -> Entry | None:
        """Returns the first entry of that origin."""
        if self._late or self._gone:
            self._tidy()
        found = self._at(self._find(origin, -1))
        return found if found is not None and found.origin == origin else None

    def remove(self, entry: Entry) -> None:
        """Removes that entry, which the caller has found by `get`."""
        if not self._gone and self._find(entry.origin, entry.offset) == self._head:
            self.pop()
            return
        if self._rare is not None:
            self._rare.pop(entry.offset, None)
        if not isinstance(self._gone, set):
            self._gone = set()
        self._gone.add((entry.origin, entry.offset))

    def __iter__(self) -> Iterator[Entry]:
        if self._late or self._gone:
            self._tidy()
        for at in range(self._head, len(self._places) // 2):
            found = self._at(at)
            if found is not None:
                yield found


def outdated(entries: Iterable[Entry]) -> list[Entry]:
    """Returns the given entries, in order of origin and offset, that aren't the last of their origin."""
    return [entry for entry, following in pairwise(list(entries)) if entry.origin == following.origin]
