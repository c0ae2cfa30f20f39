"""A short round of every fault that can be made today; `python -m tests.faults` does long ones.

Rounds that break consumers run on the session's broker; those that break brokers share a cluster of three, started
with the first of them. Each takes its seconds of publishing and the time until everything has settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.faults.__main__ import main
from tests.faults.arena import Arena, clustered
from tests.faults.faults import FAULTS, NotBuilt
from tests.faults.plan import RoundPlan
from tests.faults.round import run_round

#: Seconds; one burst of every fault fits (a frozen consumer takes the longest: its session and up to 3 s).
SHORT = 12.0
#: Seconds until a round has failed for sure: warm-up, settling and the waiting for processes are all at their bounds.
HUNG = 420
#: Messages a second: enough that every burst meets some, few enough for two cores.
RATE = 200.0

OF_CONSUMERS = [name for name, fault in FAULTS.items() if not fault.cluster and fault.missing is None]
OF_BROKERS = [name for name, fault in FAULTS.items() if fault.cluster and fault.missing is None]
MISSING = [name for name, fault in FAULTS.items() if fault.missing is not None]


@pytest.fixture(scope="module")
def cluster(kafka: RunningKafka) -> Iterator[Arena]:
    """Three brokers behind proxies; after `kafka`, which skips when there can be none."""
    with clustered() as arena:
        yield arena


def check(name: str, arena: Arena, folder: Path) -> None:
    outcome = run_round(RoundPlan(name, seed=1, seconds=SHORT, rate=RATE), arena, folder)
    assert outcome.problems == []
    assert outcome.counts["acked"] >= SHORT * RATE / 4
    assert FAULTS[name].poison is not None or outcome.bursts
    if FAULTS[name].poison in {"raises", "hangs"} or outcome.plan.nack_percent:
        assert outcome.counts["again"] > 0
    if name in {"kill-consumer", "poison-kills"}:
        assert outcome.counts["deaths"] > 0


@pytest.mark.timeout(HUNG)
@pytest.mark.parametrize("name", OF_CONSUMERS)
def test_nothing_is_lost_or_reordered_when_consumers_break(
    name: str, kafka: RunningKafka, tmp_path: Path
) -> None:
    check(name, Arena(kafka.bootstrap), tmp_path)


@pytest.mark.timeout(HUNG)
@pytest.mark.parametrize("name", OF_BROKERS)
def test_nothing_is_lost_or_reordered_when_brokers_break(name: str, cluster: Arena, tmp_path: Path) -> None:
    check(name, cluster, tmp_path)


@pytest.mark.parametrize("name", MISSING)
def test_a_round_that_cannot_be_made_yet_says_what_it_waits_for(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotBuilt, match=rf"{name} needs .* there (is|are) none yet"):
        run_round(RoundPlan(name), Arena("127.0.0.1:1"), tmp_path)
    assert main([name, "--seconds", "1"]) == 2
    assert f"{name} needs" in capsys.readouterr().err
