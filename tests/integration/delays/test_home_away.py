"""A home topic whose only broker is killed: delayed messages in other partitions of the delays come home meanwhile."""

from __future__ import annotations

from itertools import count

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import DEAD
from kafka_pubsub.delays.service import DelayRouter
from tests.integration.away import PATIENCE, Written, leader_of, wait_until_taken_over
from tests.local_cluster import LocalCluster
from tests.support import until
from tests.unit.delays.test_role import bodies
from tests.unit.services.test_troubles import key_in

#: Seconds of each message.
DELAY = 0.5
#: Tries of the topic that is away beside which others come home.
TRIES = 2


@pytest.mark.timeout(300)
def test_a_home_topic_whose_broker_is_killed_makes_no_other_partition_late(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PubSub(cluster.bootstrap) as ps:
        backend = ps._cluster.backend
        written = Written(backend, monkeypatch)
        good = ps.create_topic("good", partitions=1)
        bad = ps.create_topic("bad", partitions=1, replication=1)
        numbers = count(1)

        def come_home() -> None:
            number = next(numbers)
            good.publish(b"%d" % number, ordering_key=key_in("good", 0), delay=DELAY).result(PATIENCE)
            until(lambda: len(bodies(backend, "good")) == number, f"message {number}", PATIENCE)

        with DelayRouter(ps, tiers=4, partitions=2) as router:
            router.wait_until_running(PATIENCE)
            come_home()
            bad.publish(b"waits", ordering_key=key_in("bad", 1), delay=3).result(PATIENCE)
            down = leader_of(cluster, "bad")
            cluster.kill(down)
            wait_until_taken_over(cluster, down)
            until(lambda: "bad" in router.health().error, "the topic that is away in health", PATIENCE)
            since = len(written.ended)
            for _ in range(TRIES):
                written.do_while_under_way("bad", come_home)
            assert not any({"good", "bad"} <= each.topics for each in written.ended[since:])
            assert "bad" in router.health().error
            cluster.start(down)
            until(lambda: bodies(backend, "bad") == [b"waits"], "what waited", PATIENCE)
            until(lambda: router.health().ok, "a healthy router", PATIENCE)
        assert bodies(backend, DEAD) == []
