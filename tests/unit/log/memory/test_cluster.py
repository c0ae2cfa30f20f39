"""A log in memory that loses its last records."""

from __future__ import annotations

import pytest

from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import LogEnd, TopicPartition

AT = TopicPartition("orders", 0)


def _cut(cluster: MemoryCluster, end: int, grown: int = 0) -> None:
    cluster.lose_tail("orders", 0, end)
    for _ in range(grown):
        cluster.append("orders", 0, b"new")


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    MemoryBackend(cluster=made).admin.create_topic("orders", 1, None, {})
    for _ in range(10):
        made.append("orders", 0, b"old")
    return made


def _lost(cluster: MemoryCluster, *ends: LogEnd) -> list[int | None]:
    fetch = MemoryBackend(cluster=cluster).record_fetch()
    return [fetch.lost_tails({AT: end}, 1).get(AT) for end in ends]


def test_a_log_that_has_grown_again_is_reported_by_its_epoch(cluster: MemoryCluster) -> None:
    _cut(cluster, 5, grown=8)
    assert [cluster.log(AT).at(4).leader_epoch(), cluster.log(AT).at(5).leader_epoch()] == [0, 1]  # type: ignore[union-attr]
    assert _lost(cluster, LogEnd(10, 0), LogEnd(5, 0), LogEnd(13, 1), LogEnd(10)) == [5, None, None, None]


def test_of_two_losses_the_lower_counts(cluster: MemoryCluster) -> None:
    _cut(cluster, 5, grown=3)
    _cut(cluster, 2, grown=9)
    assert _lost(cluster, LogEnd(10, 0), LogEnd(8, 1), LogEnd(11, 2)) == [2, 2, None]
