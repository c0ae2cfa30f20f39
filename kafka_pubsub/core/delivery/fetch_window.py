"""How much is taken on at once: when to stop fetching, from whom, and when to go on.

Theory. A partition's *fill* is what it holds against its share: of the bytes that the process may buffer, and of
the records of its window. More records than that wouldn't be started soon, and would only grow cold in memory.

Rules
1. When the partitions together are full, fetching waits for a moment; if that doesn't help, those that are full
   themselves are paused, so that one stuck partition doesn't stop the others. One that is far ahead of the others
   (few keys, slow callbacks) is paused at once.
2. A paused partition resumes at half of what paused it: without that hysteresis each message would pause and
   resume it, and a pause throws away what the log's client had fetched ahead.
3. What is paused is never empty: it has records here, whose end resumes it.
4. What is paused doesn't count as full: the others share the bytes that it leaves, and one share at the least.
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
#: Windows that a slow partition may be ahead of the others before it is paused on its own account.
AHEAD = 2


class Held(NamedTuple):
    """What a partition holds unfinished."""

    records: int
    bytes: int


class Change(NamedTuple, Generic[Partition]):
    """What to pause and what to resume."""

    pause: list[Partition]
    resume: list[Partition]


class BufferGate(Generic[Partition]):
    """Decides by what each partition holds."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        #: Partitions that aren't fetched. Empty: everything flows.
        self.paused: set[Partition] = set()

    def room(self, held: Mapping[Partition, Held], owned: Collection[Partition]) -> int:
        """How many records may be fetched now; 0 when the partitions together are full.

        `held`: of those of the `owned` partitions that hold anything.
        """
        flowing = [each for partition, each in held.items() if partition not in self.paused]
        count = len(owned) - len(held) + len(flowing)  # what holds nothing isn't paused, or resumes now
        if not count:
            return 0
        stuck = sum(each.bytes for partition, each in held.items() if partition in self.paused)
        left = max(self.max_bytes - stuck, self.max_bytes // len(owned))
        if sum(each.bytes for each in flowing) >= left:
            return 0
        target = int(FULL * WINDOW * count)
        return max(0, target - sum(min(each.records, WINDOW) for each in flowing))

    def full(self, held: Mapping[Partition, Held], owned: Collection[Partition]) -> bool:
        """Whether fetching should wait for a moment."""
        return bool(owned) and self.room(held, owned) == 0

    def forget(self, partitions: Iterable[Partition]) -> None:
        """These came anew: whatever they were before, the log's client fetches them now."""
        self.paused.difference_update(partitions)

    def change(
        self, held: Mapping[Partition, Held], owned: Collection[Partition], *, waited: bool = True
    ) -> Change[Partition]:
        """What to pause and resume now; the caller does so. `waited`: waiting for room hasn't helped."""
        self.paused = {partition for partition in self.paused if partition in owned}
        full = waited and self.full(held, owned)
        share = self.max_bytes / max(1, len(owned))
        fill = {p: max(each.bytes / share, each.records / WINDOW) for p, each in held.items()}
        pause = [
            p
            for p, level in fill.items()
            if p not in self.paused and ((full and level >= FULL) or held[p].records >= AHEAD * WINDOW)
        ]
        resume = [p for p in self.paused if fill.get(p, 0.0) <= ENOUGH]
        self.paused = self.paused.union(pause).difference(resume)
        return Change(pause, resume)
