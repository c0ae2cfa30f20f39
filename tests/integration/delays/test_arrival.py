"""On a broker a delay counts from the moment at which the message was stored, by the broker's clock."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.local.broker import LocalKafka
from tests.integration.delays.home import Home
from tests.support import until

#: Seconds without a router: longer than a busy one takes to deliver what was due by then.
DOWNTIME = 13.0


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as pubsub:
        yield pubsub


def test_what_was_due_during_a_downtime_comes_at_once(ps: PubSub) -> None:
    """Also if the router that starts finds nothing but that one message, stored long ago."""
    ps._cluster.delay_topics.make(partitions=2)
    topic = ps.create_topic("home", partitions=1)
    topic.publish(b"due", delay=DOWNTIME - 1).result(30)
    cancelled = topic.publish(b"cancelled", delay=600).result(30)
    assert topic.cancel(cancelled), "the answer needs no router"
    time.sleep(DOWNTIME)
    home = Home(ps, topic)
    with DelayRouter(ps) as router:
        router.wait_until_running()
        running_at = time.time()
        until(lambda: home.count() == 1)
        until(lambda: router.health().ok)
    ((record, read_at),) = home.records
    assert record.value() == b"due"
    assert read_at - running_at < DOWNTIME - 1, "its delay began anew"


def test_few_ticks_are_written_while_messages_wait(ps: PubSub) -> None:
    topic = ps.create_topic("home", partitions=1)
    with DelayRouter(ps, partitions=1) as router:
        topic.publish(b"soon", delay=2).result(30)
        topic.publish(b"later", delay=600).result(30)
        until(lambda: router.metrics().get("home"))
        assert router.metrics()["ticks"] < 10


def test_a_broker_that_stamps_nothing_is_refused_and_mended(ps: PubSub) -> None:
    topic, admin = ps.create_topic("home", partitions=1), ps._cluster.backend.admin
    with DelayRouter(ps, tiers=3, partitions=2) as router:
        router.wait_until_running()
    admin.update_topic(INGEST, {"message.timestamp.type": "CreateTime"})
    topic.publish(b"unstamped", delay=0.5).result(30)
    with DelayRouter(ps) as router:
        with pytest.raises(FailedPrecondition, match="must have LogAppendTime"):
            router.wait_until_running(timeout=10)
        admin.update_topic(INGEST, {"message.timestamp.type": "LogAppendTime"})
        began, home = time.time(), Home(ps, topic)
        until(lambda: home.count() == 1)
    assert home.records[0][1] - began >= 0.5, "it is delayed from the first stamp behind it"
