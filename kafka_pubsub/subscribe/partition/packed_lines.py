"""The entries of each parked key: a few messages as one string of bytes, more of them as a `KeyLine`.

Theory. An outage parks a key for each message: a million keys with a message each. An object for each would take most
of a kilobyte; a packed entry takes 28 bytes, and the string around it 36 more.

Rules
1. A string holds up to `SHORT` entries, packed so that their order is that of (origin, offset). The empty string is a
   key whose messages all move, or are with a callback.
2. A key becomes a line with another entry beyond that, and a string again when half as many are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from kafka_pubsub.subscribe.partition.key_line import (
    DueAndFlags,
    Entry,
    Front,
    KeyLine,
    entry_of,
    schedule_of,
)

__all__ = ["SHORT", "PackedLines"]

#: Entries that are kept as a string. A line of so many takes three times as much.
SHORT = 8

#: Origin, offset, due time in ticks, flags. Big endian, so that strings compare as (origin, offset) do.
_PACKED = Struct(">QQqI")
_SIZE = _PACKED.size
_pack, _unpack = _PACKED.pack, _PACKED.unpack_from


class PackedLines(dict[bytes, "bytes | KeyLine"]):
    """The parked keys, and the entries of each."""

    def add(self, key: bytes, entry: Entry) -> None:
        """Adds an entry of the key."""
        self.put(key, entry.origin, entry.offset, schedule_of(entry))

    def put(self, key: bytes, origin: int, offset: int, schedule: DueAndFlags) -> bool:
        """Adds an entry of the key; returns whether the entry is the key's only one."""
        line = self.get(key)
        if isinstance(line, KeyLine):
            line.add(entry_of(origin, offset, schedule))
        else:
            self.append(key, line, origin, offset, schedule)
        return not line

    def append(self, key: bytes, line: bytes | None, origin: int, offset: int, schedule: DueAndFlags) -> None:
        """Adds an entry of a key whose string is `line`, or that isn't parked yet (None)."""
        packed = _pack(origin, offset, *schedule)
        if not line:
            self[key] = packed
        elif len(line) >= SHORT * _SIZE:
            long = self[key] = KeyLine()
            for entry in (*_entries(line), *_entries(packed)):
                long.add(entry)
        elif packed > line[-_SIZE:]:
            self[key] = line + packed
        else:
            self[key] = b"".join(sorted([packed, *_split(line)]))

    def count(self, key: bytes) -> int:
        """Returns how many messages of the key wait."""
        return _count(self.get(key, b""))

    def total(self) -> int:
        """Returns how many messages wait."""
        return sum(map(_count, self.values()))

    def peek(self, key: bytes, at: int = 0) -> Entry | None:
        """Returns the key's entry number `at` from the front."""
        line = self.get(key, b"")
        if isinstance(line, KeyLine):
            return line.peek(at)
        return _entry(line, at * _SIZE) if at * _SIZE < len(line) else None

    def front(self, key: bytes) -> Front | None:
        """Returns the numbers of the key's first entry."""
        line = self.get(key, b"")
        if isinstance(line, KeyLine):
            return line.front()
        return _unpack(line) if line else None

    def take_only(self, key: bytes) -> bool:
        """Removes the key's first entry if there is no other; returns whether it did."""
        line = self[key]
        if isinstance(line, KeyLine) or len(line) != _SIZE:
            return False
        self[key] = b""
        return True

    def drop_first(self, key: bytes) -> None:
        """Removes the key's first entry."""
        line = self[key]
        if not isinstance(line, KeyLine):
            self[key] = line[_SIZE:]
            return
        line.pop()
        if len(line) <= SHORT // 2:
            self[key] = b"".join(_pack(each.origin, each.offset, *schedule_of(each)) for each in line)

    def find(self, key: bytes, origin: int, offset: int) -> Entry | None:
        """Returns that entry, if it waits here."""
        line = self.get(key, b"")
        if isinstance(line, KeyLine):
            return line.get(origin, offset)
        return next((each for each in _entries(line) if each[:2] == (origin, offset)), None)

    def first_of(self, key: bytes, origin: int) -> Entry | None:
        """Returns the key's first entry of that origin."""
        line = self.get(key, b"")
        if isinstance(line, KeyLine):
            return line.at(origin)
        return next((each for each in _entries(line) if each.origin == origin), None)

    def remove(self, key: bytes, entry: Entry) -> None:
        """Removes that entry, which the caller has found."""
        line = self[key]
        if isinstance(line, KeyLine):
            line.remove(entry)
        else:
            kept = [each for each in _split(line) if _unpack(each)[:2] != entry[:2]]
            self[key] = b"".join(kept)

    def entries(self, key: bytes) -> Iterator[Entry]:
        """Returns the key's entries, in their order."""
        line = self.get(key, b"")
        return iter(line) if isinstance(line, KeyLine) else _entries(line)


def _count(line: bytes | KeyLine) -> int:
    return len(line) if isinstance(line, KeyLine) else len(line) // _SIZE


def _split(line: bytes) -> list[bytes]:
    return [line[at : at + _SIZE] for at in range(0, len(line), _SIZE)]


def _entry(line: bytes, at: int) -> Entry:
    origin, offset, due, flags = _unpack(line, at)
    return entry_of(origin, offset, (due, flags))


def _entries(line: bytes) -> Iterator[Entry]:
    for at in range(0, len(line), _SIZE):
        yield _entry(line, at)
