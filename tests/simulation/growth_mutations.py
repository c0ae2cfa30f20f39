"""Rules of a change of layout (I12), each taken out: the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from kafka_pubsub.repartition.drain import Drain, Left
from kafka_pubsub.repartition.repartition import Repartitioner

__all__ = ["GROWTH_MUTATIONS"]

Patch = pytest.MonkeyPatch


def grown_undrained(patch: Patch) -> None:
    """The topic grows though subscriptions haven't finished the old layout."""
    patch.setattr(Drain, "look", lambda self, record, barrier: Left())


def retry_topic_undrained(patch: Patch) -> None:
    """Messages in the retry topic aren't waited for."""
    patch.setattr(Drain, "_left_in_retry", lambda self, record, barrier: Left())


def publishers_not_awaited(patch: Patch) -> None:
    """The barrier is taken before all publishers have seen that keys are refused."""
    real = Repartitioner.__init__

    def init(self: Repartitioner, *arguments: object, **options: object) -> None:
        real(self, *arguments, **{**options, "fence": 0.0})  # type: ignore[arg-type]

    patch.setattr(Repartitioner, "__init__", init)


#: Each with the kinds of worlds that must show it: without a retry topic, with one.
GROWTH_MUTATIONS: Mapping[Callable[[Patch], None], Sequence[bool]] = {
    grown_undrained: (False, True),
    retry_topic_undrained: (True,),
    publishers_not_awaited: (False,),
}
