"""The checker's own tests: valid histories pass, and every planted anomaly is caught."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.checker.anomalies import ANOMALIES
from tests.checker.check import check
from tests.checker.members import Plan
from tests.checker.report import KINDS
from tests.checker.story import Story
from tests.checker.world import make

#: Worlds that are tried until a plant finds a place.
TRIES = 60

#: Worlds that have to be found valid, and places at which each anomaly is planted.
VALID, PLACES = 150, 6


def drawn(seed: int, **fixed: int) -> Plan:
    """Any world; clocks are those of a host unless told otherwise."""
    chance = random.Random(seed)
    given = {
        "partitions": chance.randint(1, 3),
        "keys": chance.randint(1, 6),
        "messages": chance.randint(1, 40),
        "members": chance.randint(1, 4),
    }
    faults, ordered = chance.choice([0.0, 0.1, 0.3, 0.5]), chance.random() < 0.7
    return Plan(seed, faults=faults, ordered=ordered, **{**given, **fixed})


def passes(plan: Plan, directory: Path) -> None:
    directory.mkdir()
    report = check(make(plan, directory))
    assert report.ok, f"{plan}\n{report.summary()}"
    assert report.messages <= plan.messages <= report.acks + report.dead_letters + report.in_doubt


def test_valid_histories_pass(tmp_path: Path) -> None:
    for seed in range(VALID):
        passes(drawn(seed), tmp_path / str(seed))


def test_valid_histories_of_several_hosts_pass(tmp_path: Path) -> None:
    """Of owners on several hosts that committed nothing nobody can tell which came first, but by a clock's word."""
    for seed in range(30):
        passes(drawn(seed, hosts=2 + seed % 2), tmp_path / str(seed))


def planted(name: str, plan: Plan, directory: Path) -> bool:
    """Plants an anomaly and holds the finding against its name; False if there is no place for the anomaly."""
    plant, kinds = ANOMALIES[name]
    directory.mkdir()
    story = Story(make(plan, directory), random.Random(plan.seed))
    if not plant(story):
        return False
    report = check(story.save())
    assert kinds & set(report.counts), f"{plan}\n{report.summary()}"
    return True


@pytest.mark.parametrize("name", ANOMALIES)
def test_each_anomaly_is_caught_and_called_by_its_name(name: str, tmp_path: Path) -> None:
    if not any(planted(name, Plan(seed, faults=0.3), tmp_path / str(seed)) for seed in range(TRIES)):
        pytest.fail(f"no place for {name} in {TRIES} histories")


@pytest.mark.parametrize("name", ANOMALIES)
def test_an_anomaly_is_caught_wherever_it_is_planted(name: str, tmp_path: Path) -> None:
    # A second owner of a partition in which nothing happens any more breaks no promise.
    least = 10 if name == "two_owners" else 1
    seeds = (seed for seed in range(40 * PLACES) if drawn(seed).messages >= least)
    found = 0
    for seed in seeds:
        found += planted(name, drawn(seed), tmp_path / str(seed))
        if found == PLACES:
            return
    pytest.fail(f"only {found} places for {name}")


def test_every_kind_of_violation_is_planted() -> None:
    planted = frozenset().union(*(kinds for _, kinds in ANOMALIES.values()))
    assert planted == set(KINDS) - {"ownership", "unsettled"}  # these two come along with others
