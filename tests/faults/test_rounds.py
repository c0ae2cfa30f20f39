"""A short round of every fault of consumers and messages; `python -m tests.faults` does long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.faults.__main__ import main
from tests.faults.arena import Arena
from tests.faults.faults import FAULTS, NotBuilt
from tests.faults.plan import RoundPlan
from tests.faults.round import run_round
from tests.faults.rounds import HUNG, check, possible


@pytest.mark.timeout(HUNG)
@pytest.mark.parametrize("name", possible(cluster=False))
def test_nothing_is_lost_or_reordered_when_consumers_break(
    name: str, kafka: RunningKafka, tmp_path: Path
) -> None:
    check(name, Arena(kafka.bootstrap), tmp_path)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.missing is not None])
def test_a_round_that_cannot_be_made_yet_says_what_it_waits_for(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotBuilt, match=rf"{name} needs .* there (is|are) none yet"):
        run_round(RoundPlan(name), Arena("127.0.0.1:1"), tmp_path)
    assert main([name, "--seconds", "1"]) == 2
    assert f"{name} needs" in capsys.readouterr().err
