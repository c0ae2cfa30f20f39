"""The messages of a partition that come after unfinished messages of their key in other lanes.

Theory. A publisher names, in each message of a key, its last messages of that key in other lanes. A message waits until
these are finished. It waits as any message does: in its key's queue, and when the queue grows long, in the retry
partition.

Rules
1. The key of the first message that waits is parked, as if that message waited in the retry partition. The key is
   settled anew when the messages for which it waits may be over.
2. A lease ends before the next message that may have to wait.
3. Only new records are looked at as a whole: a message that had nothing to wait for has nothing later either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.settings import Names

__all__ = ["Followers"]


class Followers:
    """The messages of a partition that wait; `names` None: its topic has no lanes, or keys set no order."""

    def __init__(self) -> None:
        self.names: Names | None = None
        self._number = PartitionId(0, 0)
        #: By offset in the home topic: messages that had something to wait for when they were read, and when that was.
        self.read: dict[int, float] = {}

    def ask(self, names: Names | None, number: PartitionId) -> None:
        """Asks these names from now on; `number`: of the partition."""
        self.names, self._number = names, number

    def take(self, records: Sequence[Record], offsets: Collection[int], now: float) -> list[bytes]:
        """Takes note of new records that may wait; returns their keys."""
        if not offsets:
            return []
        found = [(record.offset(), key) for record in records if (key := record.key()) is not None]
        self.read.update((offset, now) for offset, _ in found if offset in offsets)
        return list({key: None for offset, key in found if offset in offsets})

    def hold(self, key: bytes, record: Record, now: float) -> bool:
        """Returns whether the first message of a key waits."""
        if self.names is None:
            return False
        offset = record.offset()
        if self.names.waits(self._number, key, record, self.read.get(offset, now)):
            return True
        self.read.pop(offset, None)
        return False

    def goes_along(self, record: Record) -> bool:
        """Returns whether a message of the retry partition may follow others in a lease."""
        return self.names is None or not self.names.may_wait(self._number, record)

    def next_in(self, queue: Sequence[Record]) -> int | None:
        """Returns the offset of the first message behind the front that may wait (rule 2)."""
        if not self.read:
            return None
        return next((each.offset() for each in queue[1:] if each.offset() in self.read), None)

    def leave(self, keys: Iterable[bytes | None]) -> None:
        """Takes note that messages of these keys are finished, or with no lease any more."""
        if self.names is not None:
            self.names.changed(keys)
