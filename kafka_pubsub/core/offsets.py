"""Which received records are unfinished, and from that: what may be committed.

Theory. Kafka remembers one number per partition, the position below which all is finished. Acks arrive in any
order, so the finished records above that position travel with it as *runs* in the commit's metadata.

Rules
1. `unfinished` holds every received record that isn't finished, in order of offset. Its first is the committable
   position; empty means: all that was received is finished, and `position` is committable.
2. A hole (compaction, transaction markers) counts as finished. It costs nothing in the map: two unfinished
   records with only a hole between them are neighbours.
3. What an earlier commit's map says is finished (`known`) is dropped when it is read again, and stays in the map
   until then.
4. `intervals` counts the groups of neighbouring unfinished records. Runs in the map are never more than that
   plus what is in `known`, so whoever reserves room knows the worst case without looking at the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_pubsub.core.events import Record
from kafka_pubsub.errors import InvariantViolated

__all__ = ["Offsets", "Run"]

#: First finished offset and the one after the last.
Run = tuple[int, int]

#: In place of a neighbour where finished records of an earlier map lie between; no offset has this number.
_NOBODY = -1


class Offsets:
    """The books of one partition: received, unfinished, finished."""

    def __init__(self, position: int, known: Sequence[Run] = ()) -> None:
        #: The next offset that has not been received.
        self.position = position
        #: Offsets received and not finished, ascending; the values are unused. Empty: nothing is outstanding.
        self.unfinished: dict[int, None] = {}
        #: Groups of neighbouring unfinished records (rule 4). 0 exactly when `unfinished` is empty.
        self.intervals = 0
        #: Runs of an earlier commit above `position`, ascending, disjoint. Empty: nothing more to skip.
        self.known: list[Run] = [run for run in known if run[1] > position]
        #: Neighbours across a hole, by offset; only records beside a hole are in here.
        self._right: dict[int, int] = {}
        self._left: dict[int, int] = {}
        #: The last received offset: the left neighbour of the next one.
        self._last = -1
        #: True when records of `known` lie between the last received one and `position`.
        self._skipped = False
        self._advance(position)

    @property
    def committable(self) -> int:
        """The lowest offset that isn't finished."""
        return next(iter(self.unfinished), self.position)

    @property
    def span(self) -> int:
        """How many offsets the map may have to describe."""
        end = self.known[-1][1] if self.known else self.position
        return end - self.committable

    def receive(self, records: Sequence[Record]) -> Sequence[Record]:
        """Books records as received; returns those that are news (neither received nor finished before)."""
        if not records:
            return records
        first, last = records[0][0], records[-1][0]
        if first < self.position or self.known:
            records = self._news(records)
            if not records:
                self._advance(last + 1)
                return records
            first = records[0][0]
        if last - first + 1 == len(records) and first == self.position:
            self._receive_dense(first, last)
        else:
            self._receive_sparse(records)
        self._advance(last + 1)
        return records

    def _advance(self, position: int) -> None:
        self.position = max(self.position, position)
        while self.known and self.known[0][0] <= self.position:
            self.position = max(self.position, self.known.pop(0)[1])
            self._skipped = True

    def _news(self, records: Sequence[Record]) -> list[Record]:
        news = []
        known, at = self.known, 0
        for record in records:
            offset = record[0]
            while at < len(known) and known[at][1] <= offset:
                at += 1
            if offset >= self.position and not (at < len(known) and known[at][0] <= offset):
                news.append(record)
        return news

    def _receive_dense(self, first: int, last: int) -> None:
        self._meet(first, apart=self._skipped)
        self.unfinished.update(dict.fromkeys(range(first, last + 1)))
        self._last, self._skipped = last, False

    def _receive_sparse(self, records: Sequence[Record]) -> None:
        known, at = self.known, 0
        for offset, _, _ in records:
            while at < len(known) and known[at][0] < offset:
                self._skipped = True
                at += 1
            self._meet(offset, apart=self._skipped)
            self.unfinished[offset] = None
            self._last, self._skipped = offset, False

    def _meet(self, offset: int, *, apart: bool) -> None:
        """The next record to be received meets its left neighbour; `apart` if finished ones lie between."""
        last = self._last
        if last not in self.unfinished:
            self.intervals += 1
        elif apart:
            self.intervals += 1
            self._right[last] = self._left[offset] = _NOBODY
        elif last + 1 != offset:
            self._right[last], self._left[offset] = offset, last

    def finish(self, offsets: Iterable[int]) -> None:
        """Books records as finished; one that isn't unfinished is a defect of the caller."""
        unfinished = self.unfinished
        intervals = self.intervals
        if self._right:
            for offset in offsets:
                del unfinished[offset]
                left = self._left.pop(offset, offset - 1) in unfinished
                intervals += left + (self._right.pop(offset, offset + 1) in unfinished) - 1
        else:
            for offset in offsets:
                del unfinished[offset]
                intervals += ((offset - 1) in unfinished) + ((offset + 1) in unfinished) - 1
        self.intervals = intervals

    def runs(self) -> list[Run]:
        """The finished runs above `committable`, ascending and disjoint."""
        runs: list[Run] = []
        expected = -1
        right = self._right
        for offset in self.unfinished:
            if offset != expected and expected >= 0:
                runs.append((expected, offset))
            expected = offset + 1
            if right and offset in right:
                neighbour = right[offset]
                expected = neighbour if neighbour != _NOBODY else expected
        if 0 <= expected < self.position and (self._skipped or self._last not in self.unfinished):
            runs.append((expected, self.position))
        for start, end in self.known:
            runs.append((start, end))
        return runs

    def worst_runs(self, handed: int) -> int:
        """The most runs the map can have after any of `handed` unfinished records have been finished."""
        return self.intervals + handed + len(self.known)

    def check(self) -> None:
        """Raises `InvariantViolated` if the books contradict themselves."""
        offsets = list(self.unfinished)
        if offsets != sorted(offsets):
            raise InvariantViolated("unfinished offsets are out of order")
        if offsets and offsets[-1] >= self.position:
            raise InvariantViolated(f"offset {offsets[-1]} is unfinished but {self.position} wasn't received")
        groups = sum(
            1
            for at, offset in enumerate(offsets)
            if at == 0 or self._right.get(offsets[at - 1], offsets[at - 1] + 1) != offset
        )
        if groups != self.intervals:
            raise InvariantViolated(f"{self.intervals} intervals booked, {groups} counted")
        if len(self.runs()) > self.worst_runs(0):
            raise InvariantViolated("more finished runs than the worst case allows")
