"""Disasters: events that befall all processes of a world at once, or a log that they read.

Theory. A disaster is a module of `disasters/`, which holds everything about it: the event, the knowledge of the books
of the world (`RetryLedger`) afterwards, and the mutations that only this disaster shows. Each draws from its own
generator, so a new disaster leaves the stories of all other worlds unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.simulation.plan import Plan, PlanVariant

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

__all__ = ["QUIET", "Disaster", "end_all"]

#: Seconds after the end of all processes: their sessions, transactions and late requests are over.
QUIET = 60.0


@dataclass(frozen=True)
class Disaster:
    """A kind of disaster. `weight`: how often it comes beside the steps of `plan.LIFE`, in a `share` of the worlds."""

    name: str
    weight: float
    share: float
    befall: Callable[[SimulatedWorld], None]
    #: Rules that are needed because of the disaster, and the plans without which each is missed.
    mutations: Mapping[Callable[[pytest.MonkeyPatch], None], PlanVariant] = field(default_factory=dict)

    def drawn(self, plan: Plan, seed: int) -> Plan:
        """The plan of that seed, with this disaster or without."""
        if plan.retry.killers_only or Random(f"{self.name} {seed}").random() >= self.share:
            return plan
        return self.often(plan, self.weight)

    def often(self, plan: Plan, weight: float) -> Plan:
        """The same plan with this disaster."""
        return replace(plan, actions={**plan.actions, self.name: weight})


def end_all(world: SimulatedWorld) -> None:
    """All members of the group end at once, and so do their callbacks."""
    while world.processes:
        world.crash()
    if world._stranger is not None:
        world.stranger()
    world.time_passes(QUIET)
    world.ledger.look()
