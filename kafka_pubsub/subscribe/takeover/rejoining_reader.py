"""A reader that can leave its group and come back as a new member, while its stream goes on.

Theory. A group fences requests of an earlier membership, not those of an earlier ownership: a member that has seen a
rebalance can still overwrite the commit of a partition's next owner. So no request may outlive the ownership under
which it was made, unless the membership ends with it. A caller that can't wait for an answer any longer ends the
membership with `rejoin`.

Rules
1. A commit that is unanswered when partitions are revoked or lost is such a request. The reader waits for its answer,
   and leaves the group if none comes.
2. It leaves between two reads, never inside a callback of the group. Partitions that are still owned are given up as at
   a close, with a final commit; those that couldn't be revoked are reported as lost.
3. A stream that must read other topics from now on leaves first, so that no request names both the old and the new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.log.ports import LogReader, RebalanceListener
from kafka_pubsub.model import ReadFrom, StoredRecord, TopicPartition
from kafka_pubsub.subscribe.takeover.delegating_reader import DelegatingListener, DelegatingReader

__all__ = ["RejoiningReader"]

log = logging.getLogger("kafka_pubsub.subscriber")


class RejoiningReader(DelegatingReader):
    """A `LogReader` that uses one reader after the other; each is a member of the group."""

    def __init__(self, make: Callable[[], LogReader]) -> None:
        super().__init__(make())
        self._make = make
        self._topics: Sequence[str] = ()
        self._listener: _Listener | None = None
        self._leaving = False
        #: Returns the topics to read after the next rejoin; None: the same topics.
        self._choose: Callable[[], Sequence[str]] | None = None

    def rejoin(self, topics: Callable[[], Sequence[str]] | None = None) -> None:
        """Rejoins as a new member at the next read; calls `topics`, for what to read then, once it has left."""
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
            log.info("a commit isn't answered and its partitions are gone: coming back as a new member")
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
    """The stream's listener, with a check for unanswered commits whenever partitions go."""

    def __init__(self, listener: RebalanceListener, look: Callable[[], None]) -> None:
        super().__init__(listener)
        self._look = look
        #: The partitions that the stream owns, by its last notification.
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
