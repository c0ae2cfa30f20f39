"""Any orders at any workers lead all of them to the same units; each rule of that is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.worker.followed import Following
from tests.unit.worker.steering_mutations import MUTATIONS, Patch

SEARCH = settings(
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    verbosity=Verbosity.quiet,
    suppress_health_check=list(HealthCheck),
)


def test_workers_run_what_the_last_orders_say() -> None:
    run_state_machine_as_test(Following, settings=SEARCH)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
def test_a_rule_that_is_taken_out_is_noticed(
    mutation: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Following, settings=SEARCH)
