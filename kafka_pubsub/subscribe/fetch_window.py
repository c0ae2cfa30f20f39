"""How much a stream holds at once: when it stops fetching, from which partitions, and when it goes on.

Theory. A partition's *fill* is what it holds against its share of the bytes that the process may buffer, and against
the records of its window. Records beyond that wouldn't be started soon, and would only take memory.

Rules
1. When the partitions together are full, fetching waits for a moment. If that doesn't help, those are paused that are
   full themselves and don't move on, so that one blocked partition doesn't stop the others. Those that move on make
   room soon, and a pause throws away what the log's client had fetched ahead. A partition that is far ahead of the
   others (few keys, slow callbacks) is paused at once.
2. A paused partition resumes at half of the fill that paused it. Without that hysteresis each message would pause and
   resume it. At less it would be empty before its next records come: the client's fetch may just have begun to wait.
3. A paused partition is never empty: it has records here, and when they finish it resumes.
4. A paused partition doesn't count as full: the others share the bytes that it leaves, and one share at the least.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

__all__ = ["WINDOW", "BufferGate", "Change", "Held"]

Partition = TypeVar("Partition", bound=Hashable)

#: Records of a partition that may wait or be in flight before fetching slows down. A log read from disk comes about
#: 1000 records of a partition at a time.
WINDOW = 2000
#: The fill at which a partition counts as full, and at which a paused one resumes.
FULL, ENOUGH = 0.75, 0.375
#: The number of windows that a partition may hold before it is paused by itself.
AHEAD = 2
#: A partition moves on if it finished more than this share of what it holds while fetching waited.
MOVES = 0.05


class Held(NamedTuple):
    """What a partition holds unfinished."""

    records: int
    bytes: int
    #: The number of records that it has finished so far.
    finished: int = 0


class Change(NamedTuple, Generic[Partition]):
    """The partitions to pause and those to resume."""

    pause: list[Partition]
    resume: list[Partition]


class BufferGate(Generic[Partition]):
    """The decision which partitions are fetched, by what each of them holds."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        #: Partitions that aren't fetched. Empty: all are.
        self.paused: set[Partition] = set()
        #: The fill at which each of them resumes.
        self._enough: dict[Partition, float] = {}
        #: What each partition that held anything had finished when waiting for room last hadn't helped.
        self._finished: dict[Partition, int] = {}

    def room(self, held: Mapping[Partition, Held], owned: Collection[Partition]) -> int:
        """Returns how many records may be fetched now; 0 when the partitions together are full.

        `held` has an entry for each of the `owned` partitions that holds anything.
        """
        flowing = [each for partition, each in held.items() if partition not in self.paused]
        count = len(owned) - len(held) + len(flowing)  # an empty one isn't paused, or resumes now
        if not count:
            return 0
        stuck = sum(each.bytes for partition, each in held.items() if partition in self.paused)
        left = max(self.max_bytes - stuck, self.max_bytes // len(owned))
        if sum(each.bytes for each in flowing) >= left:
            return 0
        target = int(FULL * WINDOW * count)
        return max(0, target - sum(min(each.records, WINDOW) for each in flowing))

    def full(self, held: Mapping[Partition, Held], owned: Collection[Partition]) -> bool:
        """Returns whether fetching should wait for a moment."""
        return bool(owned) and self.room(held, owned) == 0

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forgets the pauses of partitions that were assigned anew: the log's client fetches them now."""
        self.paused.difference_update(partitions)
        self._finished.clear()

    def change(
        self, held: Mapping[Partition, Held], owned: Collection[Partition], *, waited: bool = True
    ) -> Change[Partition]:
        """Returns what the caller is to pause and resume now; `waited`: waiting for room hasn't helped."""
        self.paused = {partition for partition in self.paused if partition in owned}
        full = waited and self.full(held, owned)
        share = self.max_bytes / max(1, len(owned))
        fill = {p: max(each.bytes / share, each.records / WINDOW) for p, each in held.items()}
        standing = self._standing(held) if full else ()
        pause = [
            p
            for p, level in fill.items()
            if p not in self.paused
            and ((level >= FULL and p in standing) or held[p].records >= AHEAD * WINDOW)
        ]
        resume = [p for p in self.paused if fill.get(p, 0.0) <= self._enough.get(p, ENOUGH)]
        self._enough.update((p, max(ENOUGH, fill[p] / 2)) for p in pause)
        self.paused = self.paused.union(pause).difference(resume)
        return Change(pause, resume)

    def _standing(self, held: Mapping[Partition, Held]) -> Collection[Partition]:
        """Returns the partitions that were here when this was last asked and haven't moved on since."""
        before, self._finished = self._finished, {p: each.finished for p, each in held.items()}
        here = ((p, each) for p, each in held.items() if p in before)
        return {p for p, each in here if each.finished - before[p] <= MOVES * each.records}
