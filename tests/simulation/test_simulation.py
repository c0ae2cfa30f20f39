"""The seeds of the suite, by the command that anybody runs, and the command's words about them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import fixed, of_the_day
from tests.simulation.disasters import DISASTERS
from tests.simulation.ledger import Violation
from tests.simulation.mutation_check import Mutation, must_be_missed
from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import PlanVariant
from tests.simulation.retry_mutations import RETRY_MUTATIONS
from tests.simulation.world import simulate

#: How many seeds each suite runs. A million take some hours: run the command by hand for that.
FAST_SEEDS, SLOW_SEEDS = 100, 200
SUITES = pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(FAST_SEEDS), id="first"),
        pytest.param(fixed(SLOW_SEEDS, first=FAST_SEEDS), id="more", marks=pytest.mark.slow),
        pytest.param(of_the_day(SLOW_SEEDS), id="of the day", marks=pytest.mark.slow),
    ],
)
#: Seconds; on two idle cores the seeds of a deep run take three minutes.
LIMIT = 900


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


@pytest.mark.timeout(LIMIT + 60)
@SUITES
@pytest.mark.parametrize("options", [[], ["--retry"]], ids=["calm retry topic", "troubled retry topic"])
def test_every_promise_holds_in_every_seed(options: list[str], seeds: range) -> None:
    count = len(seeds)
    done = command(*options, "--seeds", str(count), "--from", str(seeds.start))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    last = re.search(rf"{count} of {count} seeds, .*, (\d+) deliveries, 0 failed", done.stdout)
    assert last is not None, done.stdout
    assert int(last[1]) > 10 * count, "handlers hardly ever ran: the worlds are empty"


def test_a_seed_reports_the_same_story_every_time() -> None:
    first, second = command("--seed", "77", "--trace"), command("--seed", "77", "--trace")
    assert first.returncode == 0, first.stdout
    assert "begins" in first.stdout
    assert first.stdout == second.stdout


def test_seeds_differ() -> None:
    assert len({simulate(seed).deliveries for seed in range(30)}) > 10


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS["commit_before_ack"](monkeypatch)


@pytest.mark.usefixtures("broken")
def test_a_broken_promise_says_what_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.simulation.__main__ import run_one
    from tests.simulation.slices import run_slice

    outcome = run_slice(range(20))
    assert outcome.failures
    seed, text = outcome.failures[0]
    assert re.search(r"claims: \[\d.*\] of \d are called finished", text)
    with pytest.raises(Violation):
        simulate(seed)
    assert run_one(seed, trace=True) == 1
    told = capsys.readouterr().out
    assert "joins" in told
    assert "are called finished" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", [*dict.fromkeys(RETRY_MUTATIONS.values())], ids=lambda variant: str(variant.__name__)
)
def test_every_promise_holds_where_one_trouble_is_worst(variant: PlanVariant) -> None:
    for seed in range(1000, 1010):
        simulate(seed, retry=True, variant=variant)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", RETRY_MUTATIONS, ids=lambda mutation: str(mutation.__name__))
def test_each_rule_of_the_retry_topic_is_needed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    must_be_missed(mutation, monkeypatch, retry=True, variant=RETRY_MUTATIONS[mutation])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "variant"),
    [
        pytest.param(mutation, variant, id=str(mutation.__name__))
        for disaster in DISASTERS.values()
        for mutation, variant in disaster.mutations.items()
    ],
)
def test_each_rule_is_needed_because_of_disasters(
    mutation: Mutation, variant: PlanVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    must_be_missed(mutation, monkeypatch, retry=True, variant=variant)


@pytest.mark.parametrize("name", DISASTERS)
def test_every_promise_holds_where_a_disaster_is_frequent(name: str) -> None:
    disaster = DISASTERS[name]
    for seed in range(1000, 1020):
        simulate(seed, retry=True, variant=lambda plan: disaster.often(plan, 1.0))
