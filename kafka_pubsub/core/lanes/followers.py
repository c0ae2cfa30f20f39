"""Messages that follow one of another lane: they wait here, outside of the queues, until that one is finished.

A publisher that changes the lane of a key names the key's last message in the other lane. The message that names it
and all later ones of its key in this lane wait; so the key goes on in one lane at a time.

Rules
1. The messages of a key wait in the order of their lane; only the first of a key may be let go.
2. A message that was let go takes those behind it along, up to the next one that itself follows another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from kafka_pubsub.core.records import Record
from kafka_pubsub.errors import InvariantViolated

__all__ = ["Followers"]


class Followers:
    """The messages of one partition that wait for messages of other lanes."""

    def __init__(self) -> None:
        self._lines: dict[bytes, deque[Record]] = {}
        #: By offset: the note of the caller on what the message waits for.
        self._after: dict[int, object] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[Record]:
        return (record for line in self._lines.values() for record in line)

    def sift(self, records: Sequence[Record], after: Mapping[int, object]) -> Sequence[Record]:
        """Returns the new records that may queue; keeps those in `after`, by offset, and what is behind them."""
        if not after and not self._lines:
            return records
        free: list[Record] = []
        for record in records:
            key, offset = record.key(), record.offset()
            if key is None or (offset not in after and key not in self._lines):
                free.append(record)
                continue
            self._lines.setdefault(key, deque()).append(record)
            if offset in after:
                self._after[offset] = after[offset]
        return free

    def first(self) -> list[tuple[int, object]]:
        """Returns the offset of each key's first message, with the note on what it waits for."""
        return [
            (offset, self._after[offset]) for offset in (line[0].offset() for line in self._lines.values())
        ]

    def let_go(self, offsets: Sequence[int]) -> list[Record]:
        """Lets these messages go, each the first of its key; returns them and what goes along (rule 2)."""
        gone: list[Record] = []
        wanted = set(offsets)
        for key, line in list(self._lines.items()):
            if line[0].offset() not in wanted:
                continue
            del self._after[line[0].offset()]
            while line and line[0].offset() not in self._after:
                gone.append(line.popleft())
            if not line:
                del self._lines[key]
        return gone

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        for key, line in self._lines.items():
            offsets = [record.offset() for record in line]
            if not offsets or offsets != sorted(set(offsets)) or offsets[0] not in self._after:
                raise InvariantViolated(f"key {key!r}: {offsets} wait, by {self._after}")
