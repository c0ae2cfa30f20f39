"""How much is taken on at once: when to stop fetching, from whom, and when to go on.

Rules
1. Above `limit` nothing more is fetched for a moment; if that doesn't help, the partitions that hold more than
   their fair share are paused, so that one stuck partition doesn't stop the others.
2. A paused partition resumes at half its fair share: without that hysteresis each message would pause and resume
   it, and a pause throws away what the log's client had fetched ahead.
3. What is paused is never empty-handed: it has records here, whose end resumes it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

__all__ = ["BufferGate", "Change"]

Partition = TypeVar("Partition", bound=Hashable)


class Change(NamedTuple, Generic[Partition]):
    """What to pause and what to resume."""

    pause: list[Partition]
    resume: list[Partition]


class BufferGate(Generic[Partition]):
    """Decides by the bytes that each partition has buffered."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: Partitions that aren't fetched. Empty: everything flows.
        self.paused: set[Partition] = set()

    def full(self, buffered: Mapping[Partition, int]) -> bool:
        """Whether fetching should wait for a moment."""
        return sum(buffered.values()) >= self.limit

    def change(self, buffered: Mapping[Partition, int]) -> Change[Partition]:
        """What to pause and resume now; the caller does so."""
        if not buffered:
            self.paused.clear()
            return Change([], [])
        share = self.limit // len(buffered)
        full = self.full(buffered)
        self.paused &= buffered.keys()
        pause = [p for p, size in buffered.items() if full and size >= share and p not in self.paused]
        resume = [p for p in self.paused if buffered[p] <= share // 2]
        self.paused = self.paused.union(pause).difference(resume)
        return Change(pause, resume)
