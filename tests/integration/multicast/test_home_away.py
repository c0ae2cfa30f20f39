"""A home topic whose only broker is killed: multicasts of other topics go on, and nothing is lost, doubled or torn."""

from __future__ import annotations

import pytest

from kafka_pubsub import PubSub, Sent
from kafka_pubsub.multicast.layout import DEAD, RECEIPTS
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.topics.names import inbox_topic
from tests.integration.away import PATIENCE, Written, leader_of, wait_until_taken_over
from tests.local_cluster import LocalCluster
from tests.support import until
from tests.unit.delays.test_role import bodies

#: Transactions of other topics that have to begin and end while one is tried for the topic that is away.
BESIDE = 2


def make_sick(ps: PubSub, cluster: LocalCluster) -> str:
    """Makes a causal topic with one replica, whose home and inbox are on different brokers."""
    for number in range(20):
        name = f"sick{number}"
        ps.create_topic(name, causal=True, replication=1)
        if leader_of(cluster, name) != leader_of(cluster, inbox_topic(name)):
            return name
        ps.delete_topic(name)
    raise AssertionError("home and inbox are always on the same broker")


def publish(ps: PubSub, healthy: dict[bytes, Sent]) -> None:
    """Publishes a message to topics that are well, and waits for its place."""
    data = b"%d" % len(healthy)
    healthy[data] = ps.publish_multi(["c", "d"], data).result(PATIENCE)


@pytest.mark.timeout(400)
def test_a_home_topic_whose_broker_is_killed_holds_up_no_other_topic(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PubSub(cluster.bootstrap) as ps, PubSub(cluster.bootstrap) as other:
        written = Written(ps._cluster.backend, monkeypatch)
        with PubSub(cluster.bootstrap) as third, Sequencer(ps) as sequencer:
            for name in "abcd":
                ps.create_topic(name, causal=True)
            sick = make_sick(ps, cluster)
            sequencer.wait_until_running(PATIENCE)
            healthy: dict[bytes, Sent] = {}
            other.publish_multi(["a", sick], b"0").result(PATIENCE)
            publish(third, healthy)
            down = leader_of(cluster, sick)
            cluster.kill(down)
            waiting = [other.publish_multi(["a", sick], b"%d" % number) for number in range(1, 11)]
            wait_until_taken_over(cluster, down)
            until(
                lambda: f"'{sick}'" in sequencer.health().error, "the topic that is away in health", PATIENCE
            )
            since = len(written.ended)
            written.do_until_beside(sick, lambda: publish(third, healthy), frozenset("cd"), BESIDE)
            together = {name for each in written.ended[since:] if sick in each.topics for name in each.topics}
            assert together <= {sick, RECEIPTS}, "other topics wait for its transactions"
            assert f"'{sick}'" in sequencer.health().error
            cluster.start(down)
            backend = ps._cluster.backend
            until(lambda: leader_of(cluster, sick) == down, "the topic's leader", PATIENCE)
            until(lambda: sequencer.health().ok, "a healthy sequencer", PATIENCE)
            wanted = [b"%d" % number for number in range(len(waiting) + 1)]
            until(lambda: len(bodies(backend, sick)) >= len(wanted), "what waited", PATIENCE)
            assert bodies(backend, sick) == bodies(backend, "a") == wanted
            assert bodies(backend, "c") == bodies(backend, "d") == list(healthy)
            assert bodies(backend, DEAD) == []
