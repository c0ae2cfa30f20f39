"""Topics that are well, beside a topic whose only broker is killed: how long their messages take.

A row has three brokers of its own. Measuring begins once the other brokers have taken over from the killed one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from kafka_pubsub import DelayRouter, PubSub, Sequencer
from kafka_pubsub.topics.names import inbox_topic
from tests.benchmarks.figures import percentile
from tests.benchmarks.multicaster import BODY, PATIENCE
from tests.benchmarks.row import Measured
from tests.integration.away import leader_of, wait_until_taken_over
from tests.local_cluster import LocalCluster
from tests.support import until
from tests.unit.delays.test_role import bodies
from tests.unit.services.test_troubles import key_in

__all__ = ["delays", "multicast"]

#: Seconds between two messages, and of a delay.
_EVERY, _DELAY = 0.1, 0.5


def multicast(messages: int, away: bool) -> Measured:
    """Multicasts to two topics, in turn; `away`: whether the home of others is away."""
    with LocalCluster(3) as cluster, PubSub(cluster.bootstrap) as ps, Sequencer(ps) as sequencer:
        for name in "abcd":
            ps.create_topic(name, causal=True)
        sick = _make_sick(ps, cluster)
        sequencer.wait_until_running(PATIENCE)
        for topics in (["a", sick], ["c", "d"]):
            ps.publish_multi(topics, BODY).result(PATIENCE)
        if away:
            down = leader_of(cluster, sick)
            cluster.kill(down)
            for _ in range(10):
                ps.publish_multi(["a", sick], BODY)
            wait_until_taken_over(cluster, down)
            until(lambda: f"'{sick}'" in sequencer.health().error, "the topic in health", PATIENCE)
        took = []
        with PubSub(cluster.bootstrap) as publisher:
            publisher.publish_multi(["c", "d"], BODY).result(PATIENCE)
            for began in _paced(messages):
                publisher.publish_multi(["c", "d"], BODY).result(PATIENCE)
                took.append(time.monotonic() - began)
    return _measured(took)


def delays(messages: int, away: bool) -> Measured:
    """Delayed messages of a topic, in turn; `away`: whether the home of others is away."""
    with LocalCluster(3) as cluster, PubSub(cluster.bootstrap) as ps:
        good = ps.create_topic("good", partitions=1)
        bad = ps.create_topic("bad", partitions=1, replication=1)
        backend = ps._cluster.backend
        with DelayRouter(ps, tiers=4, partitions=2) as router:
            router.wait_until_running(PATIENCE)
            if away:
                bad.publish(BODY, ordering_key=key_in("bad", 1), delay=3).result(PATIENCE)
                down = leader_of(cluster, "bad")
                cluster.kill(down)
                wait_until_taken_over(cluster, down)
                until(lambda: "bad" in router.health().error, "the topic in health", PATIENCE)
            late = []
            for number, _ in enumerate(_paced(messages), 1):
                good.publish(BODY, ordering_key=key_in("good", 0), delay=_DELAY).result(PATIENCE)
                due = time.monotonic() + _DELAY
                until(lambda: len(bodies(backend, "good")) == number, "the message", PATIENCE)  # noqa: B023
                late.append(max(0.0, time.monotonic() - due))
    return _measured(late)


def _make_sick(ps: PubSub, cluster: LocalCluster) -> str:
    """Makes a causal topic with a single replica, whose home and inbox are on different brokers."""
    for number in range(20):
        name = f"sick{number}"
        ps.create_topic(name, causal=True, replication=1)
        if leader_of(cluster, name) != leader_of(cluster, inbox_topic(name)):
            return name
        ps.delete_topic(name)
    raise RuntimeError("home and inbox are always on the same broker")


def _paced(messages: int) -> Iterator[float]:
    """Yields when each message begins; a tenth of a second lies between two at least."""
    for _ in range(messages):
        began = time.monotonic()
        yield began
        time.sleep(max(0.0, began + _EVERY - time.monotonic()))


def _measured(took: list[float]) -> Measured:
    took.sort()
    return {
        "p50_ms": percentile(took, 50) * 1e3,
        "p99_ms": percentile(took, 99) * 1e3,
        "max_ms": took[-1] * 1e3,
    }
