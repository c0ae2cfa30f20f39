"""A short round of every fault of brokers and the network, on a single cluster of three behind proxies."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
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


@pytest.mark.timeout(HUNG)
def test_questions_are_answered_while_any_one_broker_is_away(cluster: Arena) -> None:
    """Whoever takes partitions on asks before it delivers, and its group waits for it."""
    assert cluster.cluster is not None
    backend = KafkaBackend(cluster.bootstrap, {})
    name = f"t-{uuid.uuid4().hex[:12]}"
    try:
        backend.admin.create_topic(name, 3, None, {})
        for node in cluster.cluster.nodes:
            cluster.cluster.wait_in_sync()
            cluster.cluster.kill(node)
            try:
                for _ in range(3):  # the first answer may come from a connection that isn't found dead yet
                    assert backend.admin.topic(name).partitions == 3
            finally:
                cluster.cluster.start(node)
    finally:
        backend.close()
