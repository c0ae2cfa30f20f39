"""The delays get more partitions while messages wait: nothing is lost, doubled, early, or out of order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pubsub.errors import InvariantViolated
from tests.property.growing_world import run_growth
from tests.property.growth_mutations import GROWTHS


def test_partitions_are_added_while_messages_wait() -> None:
    for seed in range(30):
        run_growth(seed)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", GROWTHS, ids=lambda mutation: mutation.__name__)
def test_a_broken_rule_of_growth_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, InvariantViolated)):
        for seed in range(300):
            run_growth(seed)
