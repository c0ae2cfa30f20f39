"""Which records of the retry partition are finished: the books of a log in which a million may wait for hours.

Theory. The same promises as `offsets`, kept the other way round: what is finished is a list of runs, and what isn't
costs nothing. So a million parked records need no books of their own, and a commit tells the runs that are new.

Rules
1. `committable` is the lowest offset that isn't finished; runs lie above it, ascending, with something unfinished
   between any two.
2. A hole (a transaction's marker, an aborted record) belongs to a finished neighbour; between two unfinished records
   it is no message. So it never costs a run: each transaction leaves one, and thousands of them wait together.
3. What an earlier commit called finished is a run from the start, so it is known when it is read again.
4. Runs that a checkpoint tells aren't new, as long as they stay what they are (`checkpoint`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kafka_pubsub.core.commit.offsets import Run
from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.model import UNREAD, LogEnd, StoredRecord

__all__ = ["FinishedRuns"]

#: Holes below the committable position that aren't worth a sweep.
_FEW = 256


class FinishedRuns:
    """The books of one retry partition."""

    def __init__(
        self,
        position: int,
        known: Sequence[Run] = (),
        told: Sequence[Run] = (),
        read: LogEnd = UNREAD,
    ) -> None:
        """`known`: all that is finished above `position`; `told`: what the checkpoint says of that."""
        #: How far the log was ever read. A marker may lie between that and `position`, of a later leader's epoch.
        self.read = read
        #: The next offset that has not been received.
        self.position = position
        #: The lowest offset that isn't finished.
        self.committable = position
        #: How many records were finished.
        self.done = 0
        self._starts = [start for start, _ in known]
        self._ends = [end for _, end in known]
        # Of the runs those that no checkpoint tells.
        self._fresh = set(known).difference(told)
        # Holes between two unfinished records, ascending; those below `committable` mean nothing.
        self._hole_starts: list[int] = []
        self._hole_ends: list[int] = []
        self._swallow()

    @property
    def runs(self) -> list[Run]:
        """The finished runs above `committable`."""
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def fresh(self) -> list[Run]:
        """Those that no checkpoint tells."""
        return sorted(self._fresh)

    @property
    def run_count(self) -> int:
        """How many runs there are."""
        return len(self._starts)

    def tell(self, runs: Iterable[Run]) -> None:
        """From now on commits name a checkpoint that tells these."""
        self._fresh = set(self.runs).difference(runs)

    def finished(self, offset: int) -> bool:
        """Whether that record is finished, or never was."""
        if offset < self.committable:
            return True
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def receive(self, offset: int) -> bool:
        """Books a record as received, in order of offset; False if it isn't news."""
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
        """These were read; `epoch`: the leader epoch of the last."""
        last = (records[-1].offset() or 0) if records else -1
        if last >= self.read.offset:
            self.read = LogEnd(last + 1, epoch)

    def advance(self, position: int, epoch: int | None = None) -> None:
        """There is nothing to be read below `position` any more: what wasn't received is a hole.

        `epoch`: the leader epoch of what lies there last, if it is known.
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

    def _touches(self, low: int, high: int) -> bool:
        """Whether a finished run lies beside or inside."""
        at = bisect_left(self._ends, low)
        return at < len(self._starts) and self._starts[at] <= high

    def finish(self, offset: int) -> None:
        """Books a record as finished; one that isn't unfinished is a defect of the caller."""
        if offset >= self.position or self.finished(offset):
            raise InvariantViolated(f"retry record {offset} can't be finished: it isn't unfinished")
        self.done += 1
        low, high = offset, offset + 1
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

    def after(self, offsets: Iterable[int]) -> FinishedRuns:
        """The books as they will be when these records are finished, too."""
        books = FinishedRuns.__new__(FinishedRuns)
        books.position, books.committable, books.read = self.position, self.committable, self.read
        books._starts, books._ends = self._starts.copy(), self._ends.copy()
        books._hole_starts, books._hole_ends = self._hole_starts.copy(), self._hole_ends.copy()
        books._fresh, books.done = self._fresh.copy(), self.done
        for offset in offsets:
            books.finish(offset)
        return books

    def lowest(self, count: int) -> list[int]:
        """Up to `count` of the lowest unfinished offsets, holes left out."""
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
        """Raises `InvariantViolated` if the books contradict themselves."""
        edges = [self.committable]
        for start, end in zip(self._starts, self._ends, strict=True):
            edges += [start, end]
        if any(left >= right for left, right in pairwise(edges)):
            raise InvariantViolated(f"runs of the retry partition touch or overlap: {edges}")
        if not self._fresh <= set(self.runs):
            raise InvariantViolated("runs are told as new that aren't there any more")
        if self.position < self.committable:
            raise InvariantViolated(f"{self.committable} is finished, but {self.position} wasn't read")
