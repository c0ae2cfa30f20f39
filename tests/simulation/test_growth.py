"""A topic that grows while it is received from (I12): the promises, and that the simulation misses each rule."""

from __future__ import annotations

import pytest

from tests.simulation import variants
from tests.simulation.growth_mutations import GROWTH_MUTATIONS
from tests.simulation.mutation_check import Mutation, in_both_worlds, must_be_missed
from tests.simulation.world import simulate


@pytest.mark.parametrize("retry", [False, True])
def test_no_key_is_reordered_by_more_partitions(retry: bool) -> None:
    grown = [simulate(seed, retry=retry, variant=variants.growing).grown for seed in range(1000, 1008)]
    assert retry or any(grown), "it grew only when all was quiet"  # a retry topic is rarely empty before


@in_both_worlds(GROWTH_MUTATIONS)
def test_each_rule_of_a_change_of_layout_is_needed(
    mutation: Mutation, retry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    must_be_missed(mutation, monkeypatch, retry=retry, variant=variants.growing)
