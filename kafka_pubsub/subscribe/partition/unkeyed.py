"""Messages without a key that wait in the retry topic: each waits by itself, by the second of its due time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from kafka_pubsub.subscribe.partition.key_line import NEVER_TICKS, Entry, KeyLine, passed, ticks

__all__ = ["Unkeyed"]


class Unkeyed:
    """The entries of messages that wait without a key."""

    def __init__(self) -> None:
        self.count = 0
        self._seconds: list[int] = []
        self._later: dict[int, KeyLine] = {}
        #: The entries of seconds that have begun.
        self._soon: list[tuple[int, Entry]] = []

    def __len__(self) -> int:
        return self.count

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        second = ticks(entry.due) // 1_000_000
        line = self._later.get(second)
        if line is None:
            line = self._later[second] = KeyLine()
            heapq.heappush(self._seconds, second)
        line.add(entry)
        self.count += 1

    def next_due(self) -> float | None:
        """Returns when the next message may be due; perhaps too early, never too late."""
        times = [self._soon[0][0] / 1e6] if self._soon else []
        if self._seconds and self._seconds[0] < NEVER_TICKS // 1_000_000:
            times.append(float(self._seconds[0]))
        return min(times, default=None)

    def due(self, now: float, limit: int) -> list[Entry]:
        """Takes up to `limit` entries whose time has come; they are the caller's from now on."""
        while self._seconds and self._seconds[0] <= now:
            for entry in self._later.pop(heapq.heappop(self._seconds)):
                heapq.heappush(self._soon, (ticks(entry.due), entry))
        come: list[Entry] = []
        while self._soon and self._soon[0][0] <= passed(now) and len(come) < limit:
            come.append(heapq.heappop(self._soon)[1])
        self.count -= len(come)
        return come

    def remove(self, entry: Entry) -> bool:
        """Removes the entry, looked for first by its due time; returns False if it doesn't wait here."""
        likely = ticks(entry.due) // 1_000_000
        found = self._remove_later(likely, entry) or self._remove_soon(entry)
        found = found or any(self._remove_later(second, entry) for second in list(self._later))
        self.count -= found
        return found

    def _remove_later(self, second: int, entry: Entry) -> bool:
        line = self._later.get(second)
        found = None if line is None else line.get(entry.origin, entry.offset)
        if line is None or found is None:
            return False
        line.remove(found)
        if not len(line):  # no wakeup is needed for an empty second
            del self._later[second]
            self._seconds.remove(second)
            heapq.heapify(self._seconds)
        return True

    def _remove_soon(self, entry: Entry) -> bool:
        rest = [each for each in self._soon if each[1][:2] != entry[:2]]
        found = len(rest) < len(self._soon)
        if found:
            self._soon = rest
            heapq.heapify(self._soon)
        return found

    def __iter__(self) -> Iterator[Entry]:
        for line in self._later.values():
            yield from line
        for _, entry in self._soon:
            yield entry
