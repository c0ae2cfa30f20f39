"""A home topic whose only broker is killed: other delayed messages come home meanwhile, in the same partition too."""

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
#: Messages of each partition that come home while the topic is away.
TURNS = 4


@pytest.mark.timeout(300)
def test_a_home_topic_whose_broker_is_killed_makes_no_other_home_late(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PubSub(cluster.bootstrap) as ps:
        backend = ps._cluster.backend
        written = Written(backend, monkeypatch)
        good = ps.create_topic("good", partitions=1)
        bad = ps.create_topic("bad", partitions=1, replication=1)
        numbers = count(1)

        def come_home(partition: int) -> None:
            number = next(numbers)
            good.publish(b"%d" % number, ordering_key=key_in("good", partition), delay=DELAY).result(PATIENCE)
            until(lambda: len(bodies(backend, "good")) == number, f"message {number}", PATIENCE)

        def tries() -> int:
            return sum("bad" in each.topics for each in written.ended)

        with DelayRouter(ps, tiers=4, partitions=2) as router:
            router.wait_until_running(PATIENCE)
            come_home(0)
            bad.publish(b"waits", ordering_key=key_in("bad", 1), delay=3).result(PATIENCE)
            down = leader_of(cluster, "bad")
            cluster.kill(down)
            wait_until_taken_over(cluster, down)
            until(lambda: written.under_way("bad"), "a try", PATIENCE)
            come_home(0)
            come_home(1)
            assert tries() > 0
            assert "bad" in router.health().error
            before = tries()
            for number in range(2 * TURNS):
                come_home(number % 2)
            assert tries() == before, "nobody answers, so nothing is tried"
            bad.publish(b"later", ordering_key=key_in("bad", 1), delay=DELAY).result(PATIENCE)
        with DelayRouter(ps, tiers=4, partitions=2) as router:
            come_home(1)
            cluster.start(down)
            until(lambda: leader_of(cluster, "bad") == down, "the topic's leader", PATIENCE)
            until(lambda: bodies(backend, "bad") == [b"waits", b"later"], "what waited", PATIENCE)
            until(lambda: router.health().ok, "a healthy router", PATIENCE)
        assert bodies(backend, DEAD) == []
