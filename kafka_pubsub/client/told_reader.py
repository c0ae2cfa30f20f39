"""A reader whose commits, and what the group takes away, are told to a history.

Theory. What the history must say of both happens around calls of the reader: a commit is told before it is sent and its
answer before anybody acts on it; a revoke after the last word, which the listener sends, was answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kafka_pubsub.client.evidence import Evidence
from kafka_pubsub.client.ports import LogReader, RebalanceListener
from kafka_pubsub.core.effects import Commit, CommitBoth
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, PubSubError
from kafka_pubsub.model import Committed, Membership, StoredRecord, TopicPartition

__all__ = ["ToldReader"]


class ToldReader:
    """A `LogReader` around another one."""

    def __init__(self, reader: LogReader, topic: str, evidence: Evidence) -> None:
        self._reader = reader
        self._topic = topic
        self._evidence = evidence

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._reader.subscribe(topics, _ToldListener(listener, self._evidence))

    def commit(
        self, positions: Mapping[TopicPartition, Committed]
    ) -> Mapping[TopicPartition, PubSubError | None]:
        told = self._evidence.committing(self._commits(positions))
        try:
            answers = self._reader.commit(positions)
        except PubSubError as error:
            answers = dict.fromkeys(positions, error)
            self._answered(told, answers)
            raise
        self._answered(told, answers)
        return answers

    def _commits(self, positions: Mapping[TopicPartition, Committed]) -> dict[int, Commit | CommitBoth]:
        """By partition: of the topic, or of both halves."""
        halves: defaultdict[int, dict[bool, Commit]] = defaultdict(dict)
        for place, stored in positions.items():
            halves[place.partition][place.topic == self._topic] = Commit(stored.offset or 0, stored.metadata)
        return {
            number: CommitBoth(*both[True], both[False]) if False in both else both[True]
            for number, both in halves.items()
        }

    def _answered(
        self,
        told: Mapping[int, tuple[int, int]],
        answers: Mapping[TopicPartition, PubSubError | None],
    ) -> None:
        accepted: dict[int, bool | None] = dict.fromkeys(told, True)
        for place, error in answers.items():
            if isinstance(error, BrokerUnavailable | DeadlineExceeded):
                accepted[place.partition] = None
            elif error is not None and accepted[place.partition]:
                accepted[place.partition] = False
        self._evidence.answered(told, accepted)

    # What is passed on

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

    def position(self, partition: TopicPartition) -> int | None:
        return self._reader.position(partition)

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._reader.high_watermarks(partitions)

    def unanswered(self) -> bool:
        return self._reader.unanswered()

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        return self._reader.log_range(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._reader.seek(partition, offset)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.resume(partitions)

    def close(self) -> None:
        self._reader.close()


class _ToldListener:
    """A `RebalanceListener` around another one."""

    def __init__(self, listener: RebalanceListener, evidence: Evidence) -> None:
        self._listener = listener
        self._evidence = evidence

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._listener.assigned(partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.revoked(partitions)
        self._evidence.revoked({place.partition for place in partitions}, lost=False)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.lost(partitions)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self._listener.failed(partition, error, fatal)
