"""Partitions are added to the delays while messages wait and routers are killed: each is home once, in order."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays import drained
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.delays.layout import DEAD, INGEST
from kafka_pubsub.delays.plan import ChangeKind
from kafka_pubsub.local.broker import LocalKafka
from tests.integration.delays.growing import Routers, Sent, count_wrong, publish
from tests.integration.delays.home import Home
from tests.seeds import DEEP
from tests.support import until

pytestmark = pytest.mark.slow

FORMER, ADDED = DelayDeclaration(tiers=7, partitions=2), DelayDeclaration(tiers=7, partitions=12)


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as pubsub:
        yield pubsub


@pytest.mark.parametrize(
    ("count", "first", "spread", "kills"),
    # `just deep` takes the one of some minutes.
    [(100_000, 45, 60, 2)] if DEEP else [(240, 6, 6, 1)],
)
def test_partitions_are_added_while_messages_wait_and_routers_are_killed(
    ps: PubSub, monkeypatch: pytest.MonkeyPatch, count: int, first: float, spread: float, kills: int
) -> None:
    monkeypatch.setattr(drained, "LEARN", 0.0)
    topic = ps.create_topic("home", partitions=3)
    topology, admin = ps._cluster.topology, ps._cluster.backend.admin
    topology.apply(FORMER)
    with Routers(ps) as routers:
        for _ in range(3):
            routers.start()
        until(lambda: ps.delays.routers() == 3)
        home, sent = Home(ps, topic), Sent()
        publish(topic, count, sent, first, spread)
        routers.started[0].kill()
        topology.apply(ADDED)
        assert admin.topic(INGEST).partitions == 12
        few = min(count // 4, 1000)
        publish(topic, few, sent, 1, first + spread)
        ps._cluster.delayed.publisher.renew()
        publish(topic, few, sent, 1, first + spread)
        if kills > 1:
            routers.started[1].kill()
        places = {message_id.split(":")[1] for message_id in sent}
        assert len(places) > 6, f"all messages came in in the partitions {places}"
        until(lambda: home.count() >= len(sent), f"{len(sent)} messages at home", 240)
        until(lambda: [each.kind for each in topology.plan(ADDED)] == [ChangeKind.END])
        topology.apply(ADDED)
        assert admin.topic(DEAD).partitions == 12
        publish(topic, 40, sent, 2, 1)
        until(lambda: home.count() >= len(sent), "messages after the growth")
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            home.count()
        assert set(count_wrong(home, sent).values()) == {0}
