"""A stream's coordinator, retry I/O and reader that record a history (`recorder`).

They override methods of classes that know nothing of histories.

Rules
1. A lost partition or a passed deadline is recorded before it takes effect, a transaction and a commit before they are
   sent.
2. The end of a transaction and the answer to a commit are recorded before they have any effect, a revoke after the
   listener's final commit was answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, PubSubError
from kafka_pubsub.history.recorder import Recorder
from kafka_pubsub.log.ports import LogReader, RebalanceListener
from kafka_pubsub.model import Answered, CommitAnswers, Committed, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, Effect, StoreMoves
from kafka_pubsub.subscribe.partition.settings import Found
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveResult
from kafka_pubsub.subscribe.takeover.rejoining_reader import DelegatingListener, DelegatingReader

__all__ = ["RecordedCoordinator", "RecordedReader", "RecordedRetryIO"]


class RecordedCoordinator(Coordinator):
    """A coordinator that records assignments, losses and passed deadlines; set `evidence` before the first event."""

    evidence: Recorder

    def assign(
        self,
        committed: Mapping[PartitionId, Committed],
        begin: Callable[[PartitionId, Committed], Found],
        now: float,
        beside: Mapping[PartitionId, Committed],
    ) -> dict[PartitionId, int]:
        """Does what `Coordinator.assign` does, and records the assigned partitions."""
        begun: dict[PartitionId, Found] = {}

        def begin_anew(number: PartitionId, stored: Committed) -> Found:
            begun[number] = begin(number, stored)
            return begun[number]

        positions = super().assign(committed, begin_anew, now, beside)
        for number, stored in committed.items():
            epoch = self.partitions.epoch_of(number)
            self.evidence.assigned(number, epoch, stored, beside[number], begun.get(number))
        return positions

    def lose(self, numbers: Sequence[PartitionId], now: float) -> None:
        """Records that the partitions are lost, then does what `Coordinator.lose` does."""
        self.evidence.revoked(numbers, lost=True)
        super().lose(numbers, now)

    def _expiring(self, effects: Sequence[Effect]) -> None:
        self.evidence.expiring(effects)
        super()._expiring(effects)


class RecordedRetryIO(RetryIO):
    """A `RetryIO` that records transactions; set `evidence` before the first one."""

    evidence: Recorder

    def write_moves(self, number: PartitionId, epoch: int, effect: StoreMoves) -> None:
        """Records the transaction, then does what `RetryIO.write_moves` does."""
        self.evidence.retry_side(number, epoch, effect)
        super().write_moves(number, epoch, effect)

    def _answer(self, move_result: MoveResult) -> None:
        self.evidence.move_answered(move_result)
        super()._answer(move_result)


class RecordedReader(DelegatingReader):
    """A `LogReader` that wraps another one and records its commits."""

    def __init__(self, reader: LogReader, layout: Callable[[], Layout], evidence: Recorder) -> None:
        super().__init__(reader)
        self._layout = layout
        self._evidence = evidence

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        super().subscribe(topics, _RecordedListener(listener, self._layout, self._evidence))

    def commit(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        recorded = self._evidence.committing(self._commits(positions))

        def tell(answers: CommitAnswers) -> None:
            self._answered(recorded, answers)
            answered(answers)

        try:
            super().commit(positions, tell)
        except PubSubError as error:
            self._answered(recorded, dict.fromkeys(positions, error))
            raise

    def _commits(self, positions: Mapping[TopicPartition, Committed]) -> dict[PartitionId, CommitBoth]:
        """Groups the positions by partition: one commit for the home partition and its retry partition."""
        halves: defaultdict[PartitionId, dict[bool, Commit]] = defaultdict(dict)
        layout = self._layout()
        for place, stored in positions.items():
            commit = Commit(stored.offset or 0, stored.metadata, stored.epoch)
            halves[layout.number(place)][not layout.is_retry(place.topic)] = commit
        return {
            number: CommitBoth(*both[True][:2], both[False], both[True].epoch)
            for number, both in halves.items()
        }

    def _answered(
        self,
        recorded: Mapping[PartitionId, tuple[int, int]],
        answers: Mapping[TopicPartition, PubSubError | None],
    ) -> None:
        accepted: dict[PartitionId, bool | None] = dict.fromkeys(recorded, True)
        layout = self._layout()
        for place, error in answers.items():
            number = layout.number(place)
            if isinstance(error, BrokerUnavailable | DeadlineExceeded):
                accepted[number] = None
            elif error is not None and accepted[number]:
                accepted[number] = False
        self._evidence.answered(recorded, accepted)


class _RecordedListener(DelegatingListener):
    """A listener that records revoked partitions when their final commit was answered."""

    def __init__(self, listener: RebalanceListener, layout: Callable[[], Layout], evidence: Recorder) -> None:
        super().__init__(listener)
        self._layout = layout
        self._evidence = evidence

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        super().revoked(partitions)
        self._evidence.revoked({self._layout().number(place) for place in partitions}, lost=False)
