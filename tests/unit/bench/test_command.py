"""`python -m tests.benchmarks` as a command: its refusals, and its help."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from tests.benchmarks.__main__ import compare
from tests.benchmarks.scenarios import NAMES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(compare, arguments)


def test_a_scenario_nobody_knows_is_wrong_usage() -> None:
    outcome = run("--scenario", "pul")
    assert outcome.exit_code == 2
    assert "no scenario 'pul'; there are publish, pull" in outcome.output


@pytest.mark.parametrize("repeats", ["0", "-1", "x"])
def test_repeats_are_a_positive_number(repeats: str) -> None:
    assert run("--repeat", repeats).exit_code == 2


@pytest.mark.parametrize("seconds", ["0", "1501", "x"])
def test_seconds_stay_below_what_ends_a_row(seconds: str) -> None:
    assert run("--scenario", "failing", "--seconds", seconds).exit_code == 2


def test_seconds_are_refused_where_they_would_change_nothing() -> None:
    outcome = run("--scenario", "pull", "--seconds", "60")
    assert outcome.exit_code == 2
    assert "add --scenario failing" in outcome.output


def test_the_help_shows_examples() -> None:
    outcome = run("--help")
    assert outcome.exit_code == 0
    assert all(name in outcome.output for name in NAMES)
    assert "python -m tests.benchmarks --repeat 3 --markdown docs/benchmarks-new.md" in outcome.output
