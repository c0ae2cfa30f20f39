"""Acks that are waited for: the promises of their answers, and that the simulation misses each rule behind them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import variants
from tests.simulation.answer_mutations import ANSWER_MUTATIONS
from tests.simulation.mutation_check import Mutation, in_both_worlds, must_be_missed
from tests.simulation.world import simulate


@pytest.mark.parametrize("retry", [False, True])
def test_every_answer_is_right(retry: bool) -> None:
    told: Counter[str] = Counter()
    for seed in range(1000, 1020):
        told.update(simulate(seed, retry=retry, variant=variants.asking).answers)
    assert told["durable"] > 200
    assert told["stale"] + told["unknown"] > 0, "no owner ever changed in between"


@in_both_worlds(ANSWER_MUTATIONS)
def test_each_rule_of_the_answers_is_needed(
    mutation: Mutation, retry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    must_be_missed(mutation, monkeypatch, retry=retry, variant=variants.asking)
