"""The checker's own tests: valid histories pass, and every planted anomaly is caught."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.checker.check import check
from tests.checker.members import Plan
from tests.checker.plants import PLANTS
from tests.checker.report import KINDS
from tests.checker.story import Story
from tests.checker.world import make

#: Worlds that are tried until one has a place for a plant.
TRIES = 60

plans = st.builds(
    Plan,
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 3),
    keys=st.integers(1, 6),
    messages=st.integers(1, 40),
    members=st.integers(1, 4),
    hosts=st.integers(1, 3),
    faults=st.sampled_from([0.0, 0.1, 0.3, 0.5]),
    ordered=st.booleans(),
)
#: Each example writes files and reads them twice.
patient = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@pytest.mark.timeout(600)
@patient
@given(plan=plans)
def test_a_valid_history_passes(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as directory:
        report = check(make(plan, Path(directory)))
    assert report.ok, report.summary()
    assert report.messages <= plan.messages <= report.acks + report.dead_letters + report.in_doubt


@pytest.mark.parametrize("name", PLANTS)
def test_each_anomaly_is_caught_and_called_by_its_name(name: str, tmp_path: Path) -> None:
    plant, kinds = PLANTS[name]
    for seed in range(TRIES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        story = Story(make(Plan(seed, faults=0.3), directory), random.Random(seed))
        if plant(story):
            report = check(story.save())
            assert kinds & set(report.counts), report.summary()
            return
    pytest.fail(f"no place for {name} in {TRIES} histories")


@pytest.mark.timeout(600)
@patient
@given(plan=plans, name=st.sampled_from(sorted(PLANTS)), where=st.integers(0, 2**32))
def test_an_anomaly_is_caught_wherever_it_is_planted(plan: Plan, name: str, where: int) -> None:
    plant, kinds = PLANTS[name]
    with tempfile.TemporaryDirectory() as directory:
        story = Story(make(plan, Path(directory)), random.Random(where))
        assume(plant(story))
        # A second owner of a partition in which nothing happens any more breaks no promise.
        assume(name != "two_owners" or plan.messages >= 10)
        report = check(story.save())
    assert kinds & set(report.counts), report.summary()


def test_every_kind_of_violation_is_planted() -> None:
    planted = frozenset().union(*(kinds for _, kinds in PLANTS.values()))
    assert planted == set(KINDS) - {"ownership", "unsettled"}  # these two come along with others
