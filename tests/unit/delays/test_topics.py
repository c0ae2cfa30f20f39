"""Topics that all homes share have the cluster's replication, and lose nothing that a careful home would keep."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays import layout
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import TopicInfo
from kafka_pubsub.multicast.layout import DEAD, RECEIPTS


@pytest.mark.parametrize(("copies", "in_sync"), [(3, "2"), (1, None)])
def test_shared_topics_have_the_clusters_replication(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch, copies: int, in_sync: str | None
) -> None:
    real = MemoryCluster.create

    def create(
        self: MemoryCluster, name: str, partitions: int, replication: int, config: Mapping[str, str]
    ) -> TopicInfo:
        # The adapter in memory asks for a single copy where the caller leaves the number to the cluster.
        return real(self, name, partitions, copies if name.startswith("_") else replication, config)

    monkeypatch.setattr(MemoryCluster, "create", create)
    ps.create_topic("orders", causal=True, replication=1)
    ps._cluster.delay_topics.make(3, 1)
    for name in (RECEIPTS, DEAD, layout.DEAD, layout.INGEST, layout.tier_topic(2)):
        info = backend.admin.topic(name)
        assert (info.replication, info.config.get("min.insync.replicas")) == (copies, in_sync), name


def test_a_homes_own_replication_is_not_that_of_the_shared_topics(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", causal=True, replication=2)
    assert backend.admin.topic("orders.inbox").replication == 2
    assert backend.admin.topic(RECEIPTS).replication == 1, "the default of the cluster in memory"
