"""One partition's log: records at rising offsets, with the holes that a real log has.

Rules
1. An offset is given once. Markers of transactions, compaction and aborted records leave holes: the offset is
   used up, and no record is ever read there.
2. `start` is the first offset still stored, `end` the next one to be written, `stable_end` is where a committed
   reader stops: the first offset of the oldest open transaction, `end` if none is open.
3. A transaction stays open in this partition until its marker is written (`finish`). Deciding a transaction and
   writing its markers are two steps, so that a reader can see the decided one still closed.
4. A record has its leader's epoch. A new leader may lack the last records (`lose`): it begins a new epoch there.
5. With a `stamp` records get its time, in milliseconds, instead of their publisher's (Kafka's LogAppendTime).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence

from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.model import Header

__all__ = ["PartitionLog"]


class PartitionLog:
    """The log of one partition."""

    __slots__ = ("_begun", "_offsets", "_open", "_records", "end", "partition", "stamp", "start", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.start = 0
        self.end = 0
        self.stamp: Callable[[], int] | None = None
        # Parallel lists, offsets rising without repeats; empty: no readable record (whatever `end` is).
        self._offsets: list[int] = []
        self._records: list[MemoryRecord] = []
        # Open transaction -> its offsets in this partition, never empty.
        self._open: dict[str, list[int]] = {}
        # The offset at which each leader epoch began, by its number.
        self._begun: list[int] = [0]

    @property
    def epoch(self) -> int:
        """Returns the epoch of the leader."""
        return len(self._begun) - 1

    @property
    def stable_end(self) -> int:
        """The offset at which a committed reader stops now."""
        return min((offsets[0] for offsets in self._open.values()), default=self.end)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        milliseconds: int,
        transaction: str | None = None,
    ) -> MemoryRecord:
        """Stores a record at the end; in a transaction it is hidden until the transaction's marker."""
        stamped = self.stamp is not None
        time = milliseconds if self.stamp is None else self.stamp()
        record = MemoryRecord(
            self.topic, self.partition, self.end, key, value, headers, time, self.epoch, stamped
        )
        if transaction is not None:
            self._open.setdefault(transaction, []).append(self.end)
        self._offsets.append(self.end)
        self._records.append(record)
        self.end += 1
        return record

    def finish(self, transaction: str, committed: bool) -> None:
        """Writes the transaction's marker; without records here it writes none."""
        offsets = self._open.pop(transaction, None)
        if offsets is None:
            return
        if not committed:
            self.remove(offsets)
        self.skip(1)

    def skip(self, count: int) -> None:
        """Uses up `count` offsets at the end without a record, as markers do."""
        self.end += count

    def remove(self, offsets: Collection[int]) -> None:
        """Removes records and leaves holes, as compaction does."""
        gone = frozenset(offsets)
        self._records = [record for record in self._records if record.offset() not in gone]
        self._offsets = [offset for offset in self._offsets if offset not in gone]

    def truncate(self, before: int) -> None:
        """Deletes the records before the offset, as retention does."""
        self.start = max(self.start, min(before, self.end))
        first = bisect_left(self._offsets, self.start)
        del self._offsets[:first]
        del self._records[:first]

    def lose(self, end: int) -> None:
        """Elects a leader whose log ends at `end`: the records above it are gone, acknowledged or not."""
        self.end = min(self.end, max(end, self.start))
        first = bisect_left(self._offsets, self.end)
        del self._offsets[first:]
        del self._records[first:]
        kept = {name: [each for each in offsets if each < self.end] for name, offsets in self._open.items()}
        self._open = {name: offsets for name, offsets in kept.items() if offsets}
        self._begun = [*(min(begun, self.end) for begun in self._begun), self.end]

    def end_of(self, epoch: int | None) -> int:
        """Returns the end of the records of the leaders up to this epoch; None: the end of the log."""
        return self._begun[epoch + 1] if epoch is not None and epoch < self.epoch else self.end

    def epoch_below(self, position: int) -> int | None:
        """Returns the epoch in which the last record or marker below the position was written."""
        return bisect_right(self._begun, position - 1) - 1 if position else None

    def at(self, offset: int) -> MemoryRecord | None:
        """Returns the record at the offset, committed or not; None if there is none (any more)."""
        index = bisect_left(self._offsets, offset)
        found = index < len(self._offsets) and self._offsets[index] == offset
        return self._records[index] if found else None

    def first_at(self, milliseconds: int) -> int | None:
        """Returns the offset of the first record with this timestamp or a later one; None: there is none."""
        return next((each.offset() for each in self._records if each.timestamp()[1] >= milliseconds), None)

    def read(self, offset: int, limit: int) -> Sequence[MemoryRecord]:
        """Returns up to `limit` committed records at or after the offset."""
        first = bisect_left(self._offsets, offset)
        stop = bisect_left(self._offsets, self.stable_end) if self._open else len(self._offsets)
        return self._records[first : min(first + limit, stop)]
