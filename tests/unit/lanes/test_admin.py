"""Lanes of a topic are added and deleted; they are not taken away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_pubsub import (
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    PubSub,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import TopicPartition
from tests.unit.crashing import FailAt, another
from tests.unit.lanes.test_topics import PATIENCE, publish


def test_lanes_are_added_to_a_topic_without_changing_what_it_holds(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    jobs = ps.create_topic("jobs", partitions=1)
    publish(ps, b"before")
    ps.update_topic("jobs", priorities=3)
    assert jobs.options.default_priority == 1
    assert publish(ps, b"after", priority=1) == "jobs:0:1"
    assert publish(ps, priority=2) == "jobs.lane.p2:0:0"
    ps.update_topic("jobs", priorities=10, transient=True)
    # The topic itself stays unchanged, or its messages would change their priority.
    assert jobs.options.default_priority == 1
    assert publish(ps) == "jobs:0:2"
    assert publish(ps, priority=9) == "jobs.lane.p9:0:0"
    assert publish(ps, durable=False) == "jobs.lane.t1:0:0"
    stamps = [record.timestamp()[0] for record in cluster.log(TopicPartition("jobs", 0)).read(0, 10)]
    assert stamps == [1, 2, 2]
    assert jobs.lanes == ["jobs", "jobs.lane.p2", "jobs.lane.p9", "jobs.lane.t1"]


def test_another_process_learns_of_new_priorities_when_it_uses_one(
    ps: PubSub, cluster: MemoryCluster
) -> None:
    ps.create_topic("jobs", partitions=1)
    with another(cluster) as other:
        assert publish(other) == "jobs:0:0"
        ps.update_topic("jobs", priorities=3)
        assert publish(other, priority=2) == "jobs.lane.p2:0:0"
        assert publish(other) == "jobs:0:1"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"priorities": 2}, "priorities of topic 'jobs' can't go down from 3 to 2"),
        ({"transient": False}, "transient of topic 'jobs' can't be switched off"),
    ],
)
def test_lanes_are_not_taken_away(ps: PubSub, changes: Mapping[str, Any], error: str) -> None:
    jobs = ps.create_topic("jobs", priorities=3, transient=True)
    before = jobs.options
    with pytest.raises(FailedPrecondition, match=error):
        ps.update_topic("jobs", **changes)
    assert jobs.options == before


def test_a_change_that_the_cluster_refuses_leaves_the_topic_without_lanes(cluster: MemoryCluster) -> None:
    with another(cluster, FailAt("update_topic", PermissionDenied("no"))) as ps:
        ps.create_topic("jobs")
        with pytest.raises(PermissionDenied):
            ps.update_topic("jobs", priorities=3)
        assert ps.topic("jobs").options.priorities == 1


def test_a_changed_retention_holds_for_the_lanes_too(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("jobs", priorities=10, transient=True)
    publish(ps, priority=7)
    publish(ps, durable=False)

    def kept() -> list[str | None]:
        names = ("jobs", "jobs.lane.p7", "jobs.lane.t4")
        return [backend.admin.topic(name).config.get("retention.ms") for name in names]

    ps.update_topic("jobs", retention=60)
    assert kept() == ["60000"] * 3
    ps.update_topic("jobs", retention=86_400)
    assert kept() == ["86400000", "86400000", "3600000"]
    ps.update_topic("jobs", retention=None)
    assert kept() == [None, None, "3600000"]


def test_a_topic_with_lanes_in_use_is_not_repartitioned(ps: PubSub) -> None:
    ps.create_topic("jobs", partitions=1, priorities=10)
    publish(ps, priority=7)
    with pytest.raises(FailedPrecondition, match=r"partitions: topic 'jobs' has lanes \(jobs\.lane\.p7\)"):
        ps.repartition_topic("jobs", 2)


def test_lanes_are_deleted_with_their_topic_and_a_new_one_has_none(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("jobs", priorities=10)
    ps.create_topic("jobs.more", priorities=10)
    ps.topic("jobs.more").publish(b"x", priority=7).result(PATIENCE)
    publish(ps, priority=7)
    # A lane that an unfinished call has left.
    backend.admin.create_topic("jobs.lane.p8", 1, None, {})
    ps.delete_topic("jobs")
    assert backend.admin.topic_names() == ["jobs.more", "jobs.more.lane.p7"]
    with pytest.raises(NotFound):
        publish(ps, priority=7)
    ps.create_topic("jobs", priorities=10)
    assert ps.topic("jobs").lanes == ["jobs"]
    assert publish(ps, priority=7).endswith(":0")
