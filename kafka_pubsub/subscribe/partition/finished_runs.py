"""Which records of the retry partition are finished: the offsets of a log in which a million may wait for hours.

Theory. The same promises as `offsets`, kept the other way round: finished offsets are a list of runs, and the others
cost nothing. So a million parked records need no memory here, and a commit lists the runs that are new.

Rules
1. `committable` is the lowest offset that isn't finished; runs lie above it, ascending, with something unfinished
   between any two.
2. A hole (a transaction's marker, an aborted record) belongs to a finished neighbour; between two unfinished records
   the hole is ignored. So it never costs a run: each transaction leaves a hole, and thousands of them wait together.
3. Offsets that an earlier commit called finished are runs from the start, so they are known when they are read again.
4. Runs that a checkpoint holds aren't new, as long as they stay as they are (`checkpoint`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.model import UNREAD, LogEnd, Run, StoredRecord

__all__ = ["FinishedRuns"]

#: So few holes below the committable position aren't worth a sweep.
_FEW = 256


class FinishedRuns:
    """The offsets of a retry partition: received, finished."""

    def __init__(
        self,
        position: int,
        known: Sequence[Run] = (),
        in_checkpoint: Sequence[Run] = (),
        read: LogEnd = UNREAD,
    ) -> None:
        """`known`: all finished offsets above `position`; `in_checkpoint`: the checkpoint's part of these."""
        #: How far the log was ever read. A marker of a later leader's epoch may lie between that and `position`.
        self.read = read
        #: The next offset that has not been received.
        self.position = position
        #: The lowest offset that isn't finished.
        self.committable = position
        #: The number of records that were finished.
        self.done = 0
        self._starts = [start for start, _ in known]
        self._ends = [end for _, end in known]
        # The runs that no checkpoint holds.
        self._fresh = set(known).difference(in_checkpoint)
        # Holes between two unfinished records, ascending; holes below `committable` mean nothing.
        self._hole_starts: list[int] = []
        self._hole_ends: list[int] = []
        self._swallow()

    @property
    def runs(self) -> list[Run]:
        """The finished runs above `committable`."""
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def fresh(self) -> list[Run]:
        """The runs that no checkpoint holds."""
        return sorted(self._fresh)

    @property
    def run_count(self) -> int:
        """The number of runs."""
        return len(self._starts)

    def tell(self, runs: Iterable[Run]) -> None:
        """Takes note that commits name a checkpoint with these runs from now on."""
        self._fresh = set(self.runs).difference(runs)

    def finished(self, offset: int) -> bool:
        """Returns whether that record is finished, or never was there."""
        return offset < self.committable or self._holds(offset, offset + 1)

    def receive(self, offset: int) -> bool:
        """Takes in a record, in order of offset; returns False if the record was received or finished before."""
        if offset == self.position and not (self._ends and offset < self._ends[-1]):
            self.position += 1
            return True
        if offset < self.position:
            return False
        self.advance(offset)
        self.position = offset + 1
        news = not self.finished(offset)
        if not news:
            self.position = max(self.position, self.committable)
        return news

    def reach(self, records: Sequence[StoredRecord], epoch: int | None) -> None:
        """Takes note that these were read; `epoch`: the leader epoch of the last."""
        last = (records[-1].offset() or 0) if records else -1
        if last >= self.read.offset:
            self.read = LogEnd(last + 1, epoch)

    def advance(self, position: int, epoch: int | None = None) -> None:
        """Takes note that nothing is left to be read below `position`: offsets that weren't received are holes.

        `epoch` is the leader epoch of the last record or marker there, if known.
        """
        if epoch is not None and position > self.read.offset:
            self.read = LogEnd(position, epoch)
        low, high = self.position, position
        if high <= low:
            return
        self.position = high
        if low <= self.committable or self._touches(low, high):
            self._mark(low, high)
        else:
            self._hole_starts.append(low)
            self._hole_ends.append(high)

    def _holds(self, low: int, high: int) -> bool:
        """Returns whether a record from `low` on, below `high`, is in a run."""
        at = bisect_left(self._starts, high) - 1
        return at >= 0 and low < self._ends[at]

    def _touches(self, low: int, high: int) -> bool:
        """Returns whether a finished run lies beside or inside."""
        at = bisect_left(self._ends, low)
        return at < len(self._starts) and self._starts[at] <= high

    def finish(self, offset: int) -> None:
        """Marks a record as finished; the caller errs unless it is unfinished."""
        self._finish(offset, offset + 1)

    def finish_all(self, offsets: Iterable[int]) -> None:
        """Marks records as finished; neighbours together, because each run costs the same."""
        low = high = -1
        for offset in sorted(offsets):
            if offset != high:
                if low < high:
                    self._finish(low, high)
                low = offset
            high = offset + 1
        if low < high:
            self._finish(low, high)

    def _finish(self, low: int, high: int) -> None:
        if high > self.position or low < self.committable or self._holds(low, high):
            raise InvariantViolated(f"retry records {low} to {high} can't be finished: one isn't unfinished")
        self.done += high - low
        at = bisect_left(self._hole_ends, low)
        if at < len(self._hole_ends) and self._hole_ends[at] == low:
            low = self._hole_starts[at]
        at = bisect_left(self._hole_starts, high)
        if at < len(self._hole_starts) and self._hole_starts[at] == high:
            high = self._hole_ends[at]
        self._mark(low, high)

    def _mark(self, low: int, high: int) -> None:
        starts, ends = self._starts, self._ends
        first = bisect_left(ends, low)
        after = bisect_right(starts, high)
        if first < after:
            low, high = min(low, starts[first]), max(high, ends[after - 1])
            if after - first == 1 and (low, high) == (starts[first], ends[first]):
                return
            self._fresh.difference_update(zip(starts[first:after], ends[first:after], strict=True))
        self._fresh.add((low, high))
        starts[first:after], ends[first:after] = [low], [high]
        self._swallow()

    def _swallow(self) -> None:
        while self._starts and self._starts[0] <= self.committable:
            self._fresh.discard((self._starts[0], self._ends[0]))
            self.committable = max(self.committable, self._ends.pop(0))
            del self._starts[0]
        self.position = max(self.position, self.committable)
        past = bisect_right(self._hole_ends, self.committable)
        if past > _FEW:
            del self._hole_starts[:past], self._hole_ends[:past]

    def progress(self, gone: Collection[int]) -> tuple[int, Sequence[Run], Callable[[], Sequence[Run]]]:
        """Returns `committable`, the runs that no checkpoint holds, and all, once the records `gone` are finished."""
        after = self._after(gone) if gone else self
        return after.committable, after.fresh, lambda: after.runs

    def _after(self, offsets: Iterable[int]) -> FinishedRuns:
        finished_runs = FinishedRuns.__new__(FinishedRuns)
        finished_runs.position, finished_runs.committable, finished_runs.read = (
            self.position,
            self.committable,
            self.read,
        )
        finished_runs._starts, finished_runs._ends = self._starts.copy(), self._ends.copy()
        finished_runs._hole_starts, finished_runs._hole_ends = (
            self._hole_starts.copy(),
            self._hole_ends.copy(),
        )
        finished_runs._fresh, finished_runs.done = self._fresh.copy(), self.done
        finished_runs.finish_all(offsets)
        return finished_runs

    def lowest(self, count: int) -> list[int]:
        """Returns up to `count` of the lowest unfinished offsets, holes left out."""
        found: list[int] = []
        at = self.committable
        for start, end in [*self.runs, (self.position, self.position)]:
            while at < min(start, self.position) and len(found) < count:
                hole = bisect_right(self._hole_starts, at) - 1
                if hole >= 0 and at < self._hole_ends[hole]:
                    at = self._hole_ends[hole]
                    continue
                found.append(at)
                at += 1
            at = end
        return found

    def check(self) -> None:
        """Raises `InvariantViolated` if the runs contradict themselves."""
        edges = [self.committable]
        for start, end in zip(self._starts, self._ends, strict=True):
            edges += [start, end]
        if any(left >= right for left, right in pairwise(edges)):
            raise InvariantViolated(f"runs of the retry partition touch or overlap: {edges}")
        if not self._fresh <= set(self.runs):
            raise InvariantViolated("runs are reported as new that aren't there any more")
        if self.position < self.committable:
            raise InvariantViolated(f"{self.committable} is finished, but {self.position} wasn't read")
