"""Which received records are unfinished, and so which position may be committed.

Theory. Kafka remembers a number for each partition, the position below which all is finished. Acks arrive in any
order, so the finished records above that position travel with the position as *runs* in the commit's metadata.

Rules
1. `unfinished` holds every received record that isn't finished, in order of offset. Its first is the committable
   position. If it is empty, all received records are finished, and `position` is committable.
2. A hole (compaction, transaction markers) counts as finished, and costs nothing in the metadata: two unfinished
   records with only a hole between them are neighbours.
3. A record that an earlier commit's metadata calls finished (`known`) is dropped when the record is read again, and
   stays in the metadata until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import UNREAD, LogEnd, Run
from kafka_pubsub.subscribe.formats.checkpoint import news

__all__ = ["Offsets"]

#: Stands for a missing neighbour: finished records of an earlier commit lie between. No offset has this number.
_NOBODY = -1
#: So few holes beside finished records aren't worth a sweep: each transaction's marker makes a hole.
_FEW = 256


class Offsets:
    """The offsets of a partition: received, unfinished, finished."""

    def __init__(
        self,
        position: int,
        known: Sequence[Run] = (),
        in_checkpoint: Sequence[Run] = (),
        read: LogEnd = UNREAD,
    ) -> None:
        """`known`: all that is finished above `position`; `in_checkpoint`: what the checkpoint holds of that."""
        #: The next offset that has not been received.
        self.position = position
        #: How far the log was ever read. A marker of a later leader's epoch may lie between that and `position`.
        self.read = read
        #: Offsets received and not finished, ascending, with the size of each record.
        self.unfinished: dict[int, int] = {}
        #: The bytes of those records.
        self.size = 0
        #: Runs of an earlier commit above `position`, ascending, disjoint.
        self.known: list[Run] = [run for run in known if run[1] > position]
        #: The right neighbour of an unfinished record, unless that is the next offset. Entries of finished records mean
        #: nothing and are swept now and then.
        self._right: dict[int, int] = {}
        #: The number of records that were finished.
        self.done = 0
        self._in_checkpoint: Collection[Run] = frozenset(in_checkpoint)
        #: The last received offset: the left neighbour of the next record.
        self._last = -1
        #: True when records of `known` lie between the last received record and `position`.
        self._skipped = False
        self.advance(position)

    @property
    def committable(self) -> int:
        """The lowest offset that isn't finished."""
        return next(iter(self.unfinished), self.position)

    def receive(self, records: Sequence[Record], epoch: int | None = None) -> Sequence[Record]:
        """Takes in received records; returns the records that were neither received nor finished before.

        `epoch` is the leader epoch of the last record.
        """
        if not records:
            return records
        last = records[-1].offset()
        if last >= self.read.offset:
            self.read = LogEnd(last + 1, epoch)
        if records[0].offset() < self.position or self.known:
            records = self._news(records)
        if records:
            first, final = records[0].offset(), records[-1].offset()
            if final - first + 1 == len(records) and not self.known:
                self._meet(first, apart=self._skipped)
                sizes = list(map(len, records))
                self.unfinished.update(zip(range(first, final + 1), sizes, strict=True))
                self.size += sum(sizes)
                self._last, self._skipped = final, False
            else:
                self._receive_sparse(records)
        self.advance(last + 1)
        return records

    def advance(self, position: int, epoch: int | None = None) -> None:
        """Takes note that nothing is left to be read below `position`: offsets that weren't received are holes.

        `epoch` is the leader epoch of the last record or marker there, if known: it also shows a loss of markers.
        """
        if epoch is not None and position > self.read.offset:
            self.read = LogEnd(position, epoch)
        self.position = max(self.position, position)
        while self.known and self.known[0][0] <= self.position:
            end = self.known.pop(0)[1]
            self.position = max(self.position, end)
            # a hole before the last received record was counted when that record came
            self._skipped = self._skipped or end > self._last

    def _news(self, records: Sequence[Record]) -> list[Record]:
        news = []
        known, at = self.known, 0
        for record in records:
            offset = record.offset()
            while at < len(known) and known[at][1] <= offset:
                at += 1
            if offset >= self.position and not (at < len(known) and known[at][0] <= offset):
                news.append(record)
        return news

    def _receive_sparse(self, records: Sequence[Record]) -> None:
        known, at = self.known, 0
        for record in records:
            offset = record.offset()
            while at < len(known) and known[at][0] < offset:
                self._skipped = True
                at += 1
            self._meet(offset, apart=self._skipped)
            self.unfinished[offset] = len(record)
            self.size += len(record)
            self._last, self._skipped = offset, False

    def _meet(self, offset: int, *, apart: bool) -> None:
        """Links the next record to be received with its left neighbour; `apart`: finished ones lie between."""
        last = self._last
        if last not in self.unfinished:
            return
        if apart:
            self._right[last] = _NOBODY
        elif last + 1 != offset:
            self._right[last] = offset

    def finish(self, records: Sequence[Record]) -> None:
        """Marks records as finished; the caller errs if any of them isn't unfinished."""
        pop = self.unfinished.pop
        self.size -= sum([pop(record.offset()) for record in records])
        self.done += len(records)
        if len(self._right) > _FEW + 2 * len(self.unfinished):
            self._sweep()

    def tell(self, runs: Iterable[Run]) -> None:
        """Takes note that commits name a checkpoint with these runs from now on."""
        self._in_checkpoint = frozenset(runs)

    def runs(self) -> list[Run]:
        """Returns the finished runs above `committable`, ascending and disjoint."""
        return self._runs(list(self.unfinished))

    def progress(self, gone: Collection[int]) -> tuple[int, Sequence[Run], Callable[[], Sequence[Run]]]:
        """Returns `committable`, the runs that no checkpoint holds, and all, once the records `gone` are finished."""
        if not gone:
            runs = self.runs()
            return self.committable, news(runs, self._in_checkpoint), lambda: runs
        offsets = [at for at in self.unfinished if at not in gone]
        runs = self._runs(offsets)
        return offsets[0] if offsets else self.position, news(runs, self._in_checkpoint), lambda: runs

    def _runs(self, offsets: Sequence[int]) -> list[Run]:
        """Returns the finished runs above the first of `offsets`, which are the unfinished ones."""
        runs, expected = self._runs_beside_holes(offsets) if self._right else _dense_runs(offsets)
        if 0 <= expected < self.position and (self._skipped or self._last != offsets[-1]):
            runs.append((expected, self.position))
        runs += self.known
        return runs

    def _runs_beside_holes(self, offsets: Sequence[int]) -> tuple[list[Run], int]:
        runs: list[Run] = []
        expected = _NOBODY
        for offset in offsets:
            if offset != expected and expected >= 0:
                runs.append((expected, offset))
            right = self._right.get(offset, _NOBODY)
            expected = offset + 1 if right == _NOBODY else right
        return runs, expected

    def _sweep(self) -> None:
        self._right = {left: right for left, right in self._right.items() if left in self.unfinished}

    def check(self) -> None:
        """Raises `InvariantViolated` if the offsets contradict themselves."""
        offsets = list(self.unfinished)
        if offsets != sorted(offsets):
            raise InvariantViolated("unfinished offsets are out of order")
        if offsets and offsets[-1] >= self.position:
            raise InvariantViolated(f"offset {offsets[-1]} is unfinished but {self.position} wasn't received")
        if self.size != sum(self.unfinished.values()):
            raise InvariantViolated(f"{self.size} bytes booked, {sum(self.unfinished.values())} counted")


def _dense_runs(offsets: Sequence[int]) -> tuple[list[Run], int]:
    """Returns the runs between unfinished records, and the offset that would follow the last of these."""
    runs = [(left + 1, right) for left, right in pairwise(offsets) if right - left != 1]
    return runs, offsets[-1] + 1 if offsets else _NOBODY
