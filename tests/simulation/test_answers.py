"""Acks that are waited for: what is promised of their answers, and that the simulation misses each rule behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.simulation import foci
from tests.simulation.answer_mutations import ANSWER_MUTATIONS
from tests.simulation.world import simulate

#: Seeds within which a mistake must show. All do within forty.
WITHIN = 600


@pytest.mark.parametrize("retry", [False, True])
def test_every_answer_is_right(retry: bool) -> None:
    told: Counter[str] = Counter()
    for seed in range(1000, 1020):
        told.update(simulate(seed, retry=retry, focus=foci.asking).answers)
    assert told["durable"] > 200
    assert told["stale"] + told["unknown"] > 0, "no owner ever changed in between"


@pytest.mark.parametrize(
    ("mutation", "retry"),
    [
        pytest.param(mutation, retry, id=f"{mutation.__name__}{'-retry' * retry}")
        for mutation, kinds in ANSWER_MUTATIONS.items()
        for retry in kinds
    ],
)
def test_each_rule_of_the_answers_is_needed(
    mutation: Callable[[pytest.MonkeyPatch], None], retry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    for seed in range(WITHIN):
        try:
            simulate(seed, retry=retry, focus=foci.asking)
        except Exception:  # a violation, or the client stumbling over itself
            monkeypatch.undo()  # the control: without the mistake this very seed holds
            simulate(seed, retry=retry, focus=foci.asking)
            return
    raise AssertionError(f"{mutation.__doc__} Nobody noticed.")
