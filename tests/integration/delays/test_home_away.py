"""A home topic whose only broker is killed: delayed messages in other partitions of the delays come home in time."""

from __future__ import annotations

import time

import pytest

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.core.delays.layout import DEAD
from kafka_pubsub.services.delays import DelayRouter
from tests.cluster_view import cluster_view
from tests.local_cluster import LocalCluster
from tests.support import until
from tests.unit.services.test_delay_router import bodies
from tests.unit.services.test_locality import key_in

PATIENCE = 120.0
#: Seconds: of each message, and by how much it may be late beside a topic that is away. A transaction that gets no
#: answer takes longer, so one that waited for such a transaction would be.
DELAY, LATE = 0.5, 2.5
#: Messages, a second each, for longer than a transaction is tried.
COUNT = 20


def leader_of(cluster: LocalCluster, topic: str) -> int:
    port = int(cluster.bootstrap.partition(",")[0].rpartition(":")[2])
    found: list[int] = []

    def known() -> bool:
        view = cluster_view(port)
        found[:] = [each.leader for each in view.partitions if each.topic == topic] if view else []
        return bool(found) and found[0] > 0

    until(known, f"a leader of {topic}", PATIENCE)
    return found[0]


def lateness(ps: PubSub, topic: Topic, number: int) -> float:
    """Publishes a message with a delay that the other partition brings home; returns by how much it was late."""
    backend = ps._cluster.backend
    topic.publish(b"%d" % number, ordering_key=key_in(topic.name, 0), delay=DELAY).result(PATIENCE)
    due = time.monotonic() + DELAY
    until(lambda: len(bodies(backend, topic.name)) > number, f"message {number}", PATIENCE)
    return time.monotonic() - due


@pytest.mark.timeout(300)
def test_a_home_topic_whose_broker_is_killed_makes_no_other_partition_late(cluster: LocalCluster) -> None:
    with PubSub(cluster.bootstrap) as ps:
        good = ps.create_topic("good", partitions=1)
        bad = ps.create_topic("bad", partitions=1, replication=1)
        with DelayRouter(ps, tiers=4, partitions=2) as router:
            router.wait_until_running(PATIENCE)
            lateness(ps, good, 0)
            bad.publish(b"waits", ordering_key=key_in("bad", 1), delay=3).result(PATIENCE)
            down = leader_of(cluster, "bad")
            cluster.kill(down)
            until(lambda: "bad" in router.health().error, "the topic that is away in health", PATIENCE)
            late = []
            for number in range(1, COUNT + 1):
                late.append(lateness(ps, good, number))
                time.sleep(max(0.0, 0.5 - late[-1]))
            assert max(late) < LATE, f"late by {[round(each, 2) for each in late]}"
            assert "bad" in router.health().error
            cluster.start(down)
            until(lambda: bodies(ps._cluster.backend, "bad") == [b"waits"], "what waited", PATIENCE)
            until(lambda: router.health().ok, "a healthy router", PATIENCE)
        assert bodies(ps._cluster.backend, DEAD) == []
