"""The broker restarts while messages wait: the router goes on by itself, and each message is home once, in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.local.broker import LocalKafka
from tests.integration.delays.home import Home, publish
from tests.support import until


@pytest.mark.parametrize("end", [LocalKafka.stop, LocalKafka.kill], ids=["stop", "kill"])
def test_messages_that_wait_while_the_broker_restarts_come_home_once(
    end: Callable[[LocalKafka], None],
) -> None:
    with (
        LocalKafka() as broker,
        PubSub(broker.bootstrap) as ps,
        DelayRouter(ps, tiers=4, partitions=2) as router,
    ):
        router.wait_until_running()
        topic = ps.create_topic("home", partitions=3)
        published = publish(topic, 100)
        until(lambda: router.metrics().get("home", 0) >= 10, "the first messages at home")
        end(broker)
        assert router.metrics()["home"] < 100, "some were still waiting"
        broker.start()
        later = publish(topic, 20)
        Home(ps, topic).receive(published, later)
        until(lambda: router.health().ok, f"a healthy router: {router.health()}")


def test_messages_that_wait_while_broker_and_router_are_away_come_home_once() -> None:
    with LocalKafka() as broker:
        with PubSub(broker.bootstrap) as ps:
            topic = ps.create_topic("home", partitions=3)
            with DelayRouter(ps, tiers=4, partitions=2) as router:
                router.wait_until_running()
                published = publish(topic, 100)
                until(lambda: router.metrics().get("home", 0) >= 10, "the first messages at home")
            assert router.metrics()["home"] < 100, "some were still waiting"
        broker.stop()
        broker.start()
        with PubSub(broker.bootstrap) as ps, DelayRouter(ps):
            Home(ps, ps.topic("home")).receive(published)
