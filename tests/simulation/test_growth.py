"""A topic that grows while it is received from (I12): what is promised, and that the simulation misses each rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import foci
from tests.simulation.growth_mutations import GROWTH_MUTATIONS
from tests.simulation.world import simulate

#: Seeds within which a mistake must show.
WITHIN = 600


@pytest.mark.parametrize("retry", [False, True])
def test_no_key_is_reordered_by_more_partitions(retry: bool) -> None:
    grown = [simulate(seed, retry=retry, focus=foci.growing).grown for seed in range(1000, 1008)]
    assert retry or any(grown), "it grew only when all was quiet"  # a retry topic is rarely empty before


@pytest.mark.parametrize(
    ("mutation", "retry"),
    [
        pytest.param(mutation, retry, id=f"{mutation.__name__}{'-retry' * retry}")
        for mutation, kinds in GROWTH_MUTATIONS.items()
        for retry in kinds
    ],
)
def test_each_rule_of_a_change_of_layout_is_needed(
    mutation: Callable[[pytest.MonkeyPatch], None], retry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    for seed in range(WITHIN):
        try:
            simulate(seed, retry=retry, focus=foci.growing)
        except Exception:  # a violation, or the client stumbling over itself
            monkeypatch.undo()  # the control: without the mistake this very seed holds
            simulate(seed, retry=retry, focus=foci.growing)
            return
    raise AssertionError(f"{mutation.__doc__} Nobody noticed.")
