"""A home topic whose only broker is killed: multicasts of other topics go on, and nothing is lost, doubled or torn."""

from __future__ import annotations

import time

import pytest

from kafka_pubsub import PubSub, Sent
from kafka_pubsub.client.admin.names import inbox_topic
from kafka_pubsub.core.multicast.layout import DEAD
from kafka_pubsub.services.sequencer import Sequencer
from tests.integration.delays.test_home_away import leader_of
from tests.local_cluster import LocalCluster
from tests.support import until
from tests.unit.services.test_delay_router import bodies

PATIENCE = 120.0
#: Messages before the broker is killed and while it is away, a tenth of a second each: longer than a transaction waits.
BEFORE, AWAY = 50, 200
#: Seconds that p99 may be in any case. A message that waited for the topic that is away would take longer.
BOUND = 2.5


def make_sick(ps: PubSub, cluster: LocalCluster) -> str:
    """Makes a causal topic with one replica, whose home and inbox are on different brokers."""
    for number in range(20):
        name = f"sick{number}"
        ps.create_topic(name, causal=True, replication=1)
        if leader_of(cluster, name) != leader_of(cluster, inbox_topic(name)):
            return name
        ps.delete_topic(name)
    raise AssertionError("home and inbox are always on the same broker")


def p99(ps: PubSub, topics: list[str], count: int, sent: dict[bytes, Sent]) -> float:
    """Publishes messages one after the other; returns how many seconds it took until nearly all had their places."""
    took = []
    for _ in range(count):
        data, began = b"%d" % len(sent), time.monotonic()
        sent[data] = ps.publish_multi(topics, data).result(PATIENCE)
        took.append(time.monotonic() - began)
        time.sleep(max(0.0, 0.1 - took[-1]))
    return sorted(took)[int(0.99 * count) - 1]


@pytest.mark.timeout(400)
def test_a_home_topic_whose_broker_is_killed_holds_up_no_other_topic(cluster: LocalCluster) -> None:
    with PubSub(cluster.bootstrap) as ps, PubSub(cluster.bootstrap) as other, Sequencer(ps) as sequencer:
        for name in "abcd":
            ps.create_topic(name, causal=True)
        sick = make_sick(ps, cluster)
        sequencer.wait_until_running(PATIENCE)
        healthy: dict[bytes, Sent] = {}
        other.publish_multi(["a", sick], b"0").result(PATIENCE)
        usual = p99(ps, ["c", "d"], BEFORE, healthy)
        down = leader_of(cluster, sick)
        cluster.kill(down)
        waiting = [other.publish_multi(["a", sick], b"%d" % number) for number in range(1, 11)]
        until(lambda: f"'{sick}'" in sequencer.health().error, "the topic that is away in health", PATIENCE)
        p99(ps, ["c", "d"], 10, healthy)  # the other brokers have taken its leaderships over
        late = p99(ps, ["c", "d"], AWAY, healthy)
        assert late < max(2 * usual, BOUND), f"p99 is {late:.2f} s, and was {usual:.2f} s before"
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
