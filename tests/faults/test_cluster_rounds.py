"""A short round of every fault of brokers and the network, on one cluster of three behind proxies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.faults.arena import Arena, clustered
from tests.faults.rounds import HUNG, check, possible


@pytest.fixture(scope="module")
def cluster(kafka: RunningKafka) -> Iterator[Arena]:
    """After `kafka`, which skips when there can be none."""
    with clustered() as arena:
        yield arena


@pytest.mark.timeout(HUNG)
@pytest.mark.parametrize("name", possible(cluster=True))
def test_nothing_is_lost_or_reordered_when_brokers_break(name: str, cluster: Arena, tmp_path: Path) -> None:
    check(name, cluster, tmp_path)
