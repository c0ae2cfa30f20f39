"""A stream's coordinator and its side of the retry topic, where a history is kept (`evidence`).

Theory. A stream without a history knows nothing of one: these are told by what is overridden here.

Rules
1. What an event takes away is told before it is taken, and a transaction before it is sent.
2. The end of a transaction is told before it has any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.client.assignment.start_position import Ownership
from kafka_pubsub.client.history.recorder import Evidence
from kafka_pubsub.client.retry.retry_io import Relocating
from kafka_pubsub.client.retry.transaction_thread import Landing
from kafka_pubsub.client.subscribe.coordinator import Coordinator
from kafka_pubsub.core.effects import Effect, Relocate
from kafka_pubsub.model import Committed

__all__ = ["ToldCoordinator", "ToldRelocating"]


class ToldCoordinator(Coordinator):
    """Tells which partitions come and go, and which deadlines pass. `evidence` is set before the first event."""

    evidence: Evidence

    def assign(
        self,
        committed: Mapping[int, Committed],
        begin: Callable[[int, Committed], Ownership],
        now: float,
        beside: Mapping[int, Committed],
    ) -> dict[int, int]:
        """See `Holdings`."""
        begun: dict[int, Ownership] = {}

        def begin_anew(number: int, stored: Committed) -> Ownership:
            begun[number] = begin(number, stored)
            return begun[number]

        positions = super().assign(committed, begin_anew, now, beside)
        for number, stored in committed.items():
            epoch = self.owned[number].epoch
            self.evidence.assigned(number, epoch, stored, beside[number], begun.get(number))
        return positions

    def lose(self, numbers: Sequence[int], now: float) -> None:
        """See `Holdings`."""
        self.evidence.revoked(numbers, lost=True)
        super().lose(numbers, now)

    def _expiring(self, effects: Sequence[Effect]) -> None:
        self.evidence.expiring(effects)
        super()._expiring(effects)


class ToldRelocating(Relocating):
    """Tells of transactions. `evidence` is set before the first one."""

    evidence: Evidence

    def relocate(self, number: int, epoch: int, effect: Relocate) -> None:
        """See `Relocating`."""
        self.evidence.relocating(number, epoch, effect)
        super().relocate(number, epoch, effect)

    def _answer(self, landing: Landing) -> None:
        self.evidence.landed(landing)
        super()._answer(landing)
