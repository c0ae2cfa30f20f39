"""A stream's coordinator and retry I/O that record a history (`recorder`).

They override methods of classes that know nothing of histories.

Rules
1. A lost partition or a passed deadline is recorded before it takes effect, and a transaction before it is sent.
2. The end of a transaction is recorded before it has any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.history.recorder import Recorder
from kafka_pubsub.model import Committed
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.partition.effects import Effect, StoreMoves
from kafka_pubsub.subscribe.partition.settings import Found
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveResult

__all__ = ["RecordedCoordinator", "RecordedRetryIO"]


class RecordedCoordinator(Coordinator):
    """A coordinator that records assignments, losses and passed deadlines; set `evidence` before the first event."""

    evidence: Recorder

    def assign(
        self,
        committed: Mapping[int, Committed],
        begin: Callable[[int, Committed], Found],
        now: float,
        beside: Mapping[int, Committed],
    ) -> dict[int, int]:
        """Does what `Coordinator.assign` does, and records the assigned partitions."""
        begun: dict[int, Found] = {}

        def begin_anew(number: int, stored: Committed) -> Found:
            begun[number] = begin(number, stored)
            return begun[number]

        positions = super().assign(committed, begin_anew, now, beside)
        for number, stored in committed.items():
            epoch = self.partitions.epoch_of(number)
            self.evidence.assigned(number, epoch, stored, beside[number], begun.get(number))
        return positions

    def lose(self, numbers: Sequence[int], now: float) -> None:
        """Records that the partitions are lost, then does what `Coordinator.lose` does."""
        self.evidence.revoked(numbers, lost=True)
        super().lose(numbers, now)

    def _expiring(self, effects: Sequence[Effect]) -> None:
        self.evidence.expiring(effects)
        super()._expiring(effects)


class RecordedRetryIO(RetryIO):
    """A `RetryIO` that records transactions; set `evidence` before the first one."""

    evidence: Recorder

    def write_moves(self, number: int, epoch: int, effect: StoreMoves) -> None:
        """Records the transaction, then does what `RetryIO.write_moves` does."""
        self.evidence.retry_side(number, epoch, effect)
        super().write_moves(number, epoch, effect)

    def _answer(self, move_result: MoveResult) -> None:
        self.evidence.move_answered(move_result)
        super()._answer(move_result)
