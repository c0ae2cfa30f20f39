"""The histories of simulated processes, held against the promises: the checker agrees with the ledger."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pubsub.subscribe.partition.checkpoint_schedule import Checkpoints
from tests.checker.judgement import judge
from tests.simulation.mutations import MUTATIONS
from tests.simulation.recorded_world import PATIENT, judged
from tests.simulation.trouble import GROUP
from tests.simulation.variants import crowded

SEEDS = 12


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures on purpose need no lines."""
    logger = logging.getLogger("kafka_pubsub")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("retry", [False, True], ids=["calm retry topic", "troubled retry topic"])
def test_every_promise_is_kept_by_what_is_reported(retry: bool, tmp_path: Path) -> None:
    deliveries = 0
    for seed in range(SEEDS):
        directory = tmp_path / str(seed)
        directory.mkdir()
        judgement = judged(seed, directory, retry=retry)
        assert judgement.ok, f"seed {seed}\n{judgement.text}"
        deliveries += judgement.counts["deliveries"]
    assert deliveries > 10 * SEEDS, "handlers hardly ever ran"


def test_what_a_checkpoint_reports_is_reported_as_if_the_map_said_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = 0
    real = Checkpoints.answered

    def answered(self: Checkpoints, offset: int | None) -> None:
        nonlocal named
        named += offset is not None
        real(self, offset)

    monkeypatch.setattr(Checkpoints, "answered", answered)
    for seed in range(5):
        directory = tmp_path / str(seed)
        directory.mkdir()
        judgement = judged(seed, directory, retry=True, variant=crowded)
        assert judgement.ok, f"seed {seed}\n{judgement.text}"
    assert named > 5, "no map was ever full"


def test_a_client_that_commits_too_early_gives_itself_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTATIONS["commit_before_ack"](monkeypatch)
    found: set[str] = set()
    for seed in range(SEEDS):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            judged(seed, directory, retry=False)
        except Exception:  # the simulation has seen it; so must whoever has only the files
            found |= set(judge(directory, replace(PATIENT, drained=False)).reports[GROUP].counts)
    assert "commit_early" in found
