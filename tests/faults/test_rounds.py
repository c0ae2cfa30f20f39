"""A short round of every fault of consumers and messages; `python -m tests.faults` does long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.faults.arena import Arena
from tests.faults.rounds import HUNG, check, possible


@pytest.mark.timeout(HUNG)
@pytest.mark.parametrize("name", possible(cluster=False))
def test_nothing_is_lost_or_reordered_when_consumers_break(
    name: str, kafka: RunningKafka, tmp_path: Path
) -> None:
    check(name, Arena(kafka.bootstrap), tmp_path)
