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
4. A reader or listener around another one passes each call on that it doesn't override.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import LogReader, RebalanceListener
from kafka_pubsub.model import Answered, Committed, LogEnd, Membership, ReadFrom, StoredRecord, TopicPartition

__all__ = ["DelegatingListener", "DelegatingReader", "RejoiningReader"]

log = logging.getLogger("kafka_pubsub.subscriber")


class DelegatingReader:
    """A `LogReader` around another one."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._reader.subscribe(topics, listener)

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        return self._reader.read(max_records, timeout)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        return self._reader.committed(partitions, timeout)

    def committed_unstable(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        return self._reader.committed_unstable(partitions)

    def membership(self) -> Membership | None:
        return self._reader.membership()

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        return self._reader.positions(partitions)

    def at_end(self, partitions: Sequence[TopicPartition]) -> Set[TopicPartition]:
        return self._reader.at_end(partitions)

    def readable_ends(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, LogEnd]:
        return self._reader.readable_ends(partitions, timeout)

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._reader.high_watermarks(partitions)

    def commit(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        self._reader.commit(positions, answered)

    def unanswered(self) -> bool:
        return self._reader.unanswered()

    def settle(self) -> bool:
        return self._reader.settle()

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        return self._reader.log_range(partition)

    def reachable_ranges(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        return self._reader.reachable_ranges(partitions, timeout)

    def seek(self, partition: TopicPartition, to: ReadFrom) -> None:
        self._reader.seek(partition, to)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.resume(partitions)

    def close(self) -> None:
        self._reader.close()


class DelegatingListener:
    """A `RebalanceListener` around another one."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        return self._listener.assigned(partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.revoked(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.lost(partitions)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self._listener.failed(partition, error, fatal)


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
