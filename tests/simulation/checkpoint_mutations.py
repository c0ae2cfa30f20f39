"""Rules of checkpoints, each taken out of the client: the simulation must notice (`retry_mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kafka_pubsub.subscribe.partition.checkpoint_schedule import Checkpoints
from kafka_pubsub.subscribe.retry_topic.transaction_thread import positions_of_all
from tests.checkpoint_rules import (
    checkpoint_is_all,
    trimmed_before_the_answer,
    trimmed_past_the_checkpoint,
)
from tests.simulation import variants
from tests.simulation.plan import PlanVariant
from tests.simulation.retry import SteppedRelocating

__all__ = ["CHECKPOINT_MUTATIONS"]

Patch = pytest.MonkeyPatch


def no_checkpoints(patch: Patch) -> None:
    """All finished runs have to fit the metadata."""
    patch.setattr(Checkpoints, "wanted", lambda self, size, now: False)


def checkpoint_unread(patch: Patch) -> None:
    """The next owner of a partition knows only its map, not the checkpoint that the map names."""
    patch.setattr(SteppedRelocating, "checkpoints", lambda self, wanted: {})


def checkpoint_beside_its_transaction(patch: Patch) -> None:
    """The positions are committed without the records of the checkpoint that they name."""
    real = SteppedRelocating._take_off

    def take_off(self: SteppedRelocating) -> None:
        real(self)
        if self._steps is not None and any(move_request.named for move_request in self._together):
            records = [
                record
                for move_request in self._together
                for record in move_request.records[: move_request.checkpoint]
            ]
            named = positions_of_all(self._together)
            assert callable(named)
            positions = named([0] * sum(len(move_request.records) for move_request in self._together))
            assert isinstance(positions, dict)
            self._steps = self._transactions.steps(records, positions, self._together[0].membership)

    patch.setattr(SteppedRelocating, "_take_off", take_off)


#: Which plans show each of them within a few dozen seeds.
CHECKPOINT_MUTATIONS: Mapping[Callable[[Patch], None], PlanVariant] = {
    no_checkpoints: variants.crowded,
    checkpoint_unread: variants.crowded,
    checkpoint_is_all: variants.crowded,
    trimmed_past_the_checkpoint: variants.crowded,
    trimmed_before_the_answer: variants.crowded,
    checkpoint_beside_its_transaction: variants.crowded,
}
