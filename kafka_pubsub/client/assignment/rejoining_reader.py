"""A reader that can leave its group and come back as a new member, while its stream goes on.

Theory. A group fences what comes from an earlier membership, not what comes from an earlier ownership: a member that
has seen a rebalance can still overwrite what the next owner of a partition stored. So no request of ours may outlive
the ownership under which it was made, unless the membership ends with it. A caller that can't wait for an answer any
longer asks for that with `rejoin`.

Rules
1. A commit that is on its way when partitions go - revoked or lost - is such a request. Its answer is waited for; if
   none comes we leave by ourselves.
2. We leave between two reads, never inside a callback of the group. What is still ours then is given up like at any
   close: with a last word; what couldn't be told is told as lost.
3. A stream that must read other topics from now on leaves first, so that no request names both the old and the new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.client.assignment.delegating_reader import DelegatingListener, DelegatingReader
from kafka_pubsub.model import ReadFrom, StoredRecord, TopicPartition
from kafka_pubsub.ports import LogReader, RebalanceListener

__all__ = ["RejoiningReader"]

log = logging.getLogger("kafka_pubsub.subscriber")


class RejoiningReader(DelegatingReader):
    """A `LogReader` over one reader after the other; each is a member of its own."""

    def __init__(self, make: Callable[[], LogReader]) -> None:
        super().__init__(make())
        self._make = make
        self._topics: Sequence[str] = ()
        self._listener: _Listener | None = None
        self._leaving = False
        #: Says what to read from the next time on; None: the same.
        self._choose: Callable[[], Sequence[str]] | None = None

    def rejoin(self, topics: Callable[[], Sequence[str]] | None = None) -> None:
        """Comes back as a new member at the next read; what it reads then is asked for when it has left."""
        self._choose = topics or self._choose
        self._leaving = True

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._topics, self._listener = topics, _Listener(listener, self._look)
        self._reader.subscribe(topics, self._listener)

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        if self._leaving:
            self._come_back()
        return self._reader.read(max_records, timeout)

    def _look(self) -> None:
        if not self._reader.settle():
            log.warning("a commit isn't answered and its partitions are gone: coming back as a new member")
            self.rejoin()

    def _come_back(self) -> None:
        self._reader.close()
        listener = self._listener
        if listener is not None and listener.held:
            listener.lost(sorted(listener.held))
        self._leaving = False
        choose, self._choose = self._choose, None
        if choose is not None:
            self._topics = choose()
        self._reader = self._make()
        if listener is not None:
            self._reader.subscribe(self._topics, listener)


class _Listener(DelegatingListener):
    """Around the stream's; looks after commits that are on their way whenever something went."""

    def __init__(self, listener: RebalanceListener, look: Callable[[], None]) -> None:
        super().__init__(listener)
        self._look = look
        #: What the stream was told is its own.
        self.held: set[TopicPartition] = set()

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        self.held.update(partitions)
        return super().assigned(partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.held.difference_update(partitions)
        super().revoked(partitions)
        self._look()

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.held.difference_update(partitions)
        super().lost(partitions)
        self._look()
