"""Topics with lanes in the simulated world: the promises, and that the simulation misses each rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.simulation.laned import LanedWorld
from tests.simulation.laned_mutations import LANED_MUTATIONS
from tests.simulation.mutation_check import must_be_missed
from tests.simulation.plan import Plan
from tests.simulation.world import simulate


def test_lanes_keep_every_promise() -> None:
    deliveries = sum(simulate(seed, kind=LanedWorld).deliveries for seed in range(2000, 2025))
    assert deliveries > 200


@pytest.mark.slow
def test_lanes_without_an_order_keep_every_promise() -> None:
    deliveries = sum(
        simulate(seed, kind=LanedWorld, variant=without_an_order).deliveries for seed in range(2100, 2120)
    )
    assert deliveries > 200


def without_an_order(plan: Plan) -> Plan:
    """Plans rarely have none."""
    return replace(plan, rules=plan.rules._replace(ordered=False), inline=True)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", LANED_MUTATIONS, ids=lambda each: each.__name__)
def test_each_rule_of_lanes_is_needed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_be_missed(mutation, monkeypatch, kind=LanedWorld)
