"""`kafka-pubsub bench` as a command: what it refuses, and what it says where the repository isn't there."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafka_pubsub.cli import bench
from kafka_pubsub.cli.session import Session
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from tests.benchmarks.scenarios import NAMES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(bench.bench, arguments, obj=Session())


def test_without_the_repository_it_says_where_the_benchmark_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    outcome = run("--quick")
    assert isinstance(outcome.exception, FailedPrecondition)
    assert "clone the repository" in str(outcome.exception)


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


def test_client_settings_are_refused_because_all_rows_have_the_same() -> None:
    outcome = run("--config", "linger.ms=0")
    assert isinstance(outcome.exception, InvalidArgument)


def test_the_help_shows_examples() -> None:
    outcome = run("--help")
    assert outcome.exit_code == 0
    assert all(name in outcome.output for name in NAMES)
    assert "kafka-pubsub bench --repeat 3 --markdown docs/benchmarks.md" in outcome.output
