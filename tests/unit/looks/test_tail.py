"""The newest messages of a topic: looked at without a group, and nothing changes."""

from __future__ import annotations

from itertools import islice

import pytest

from kafka_pubsub import (
    DeadLetterPolicy,
    FailedPrecondition,
    PubSub,
    Subscription,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from tests.unit.crashing import another
from tests.unit.dying import PATIENCE
from tests.unit.looks.test_peek import LATER, by_time, data, traces


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    ps.create_topic("orders", partitions=2)
    ps.create_topic("dead")
    policy = DeadLetterPolicy(topic="dead", max_attempts=5, on_exhausted="park")
    return ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=LATER, dead_letter=policy, ack_deadline=60
    )


def test_a_tail_is_the_newest_of_all_partitions_in_order(
    ps: PubSub, sub: Subscription, backend: MemoryBackend
) -> None:
    by_time(backend.cluster, range(30))
    before = traces(backend, sub)
    assert data(list(ps.topic("orders").tail(7))) == [str(number) for number in range(23, 30)]
    assert data(list(ps.topic("orders").tail(100))) == [str(number) for number in range(30)]
    assert list(ps.topic("orders").tail(0)) == []
    assert traces(backend, sub) == before


def test_offsets_without_a_message_dont_shorten_a_tail(ps: PubSub, cluster: MemoryCluster) -> None:
    topic = ps.create_topic("orders", partitions=1)
    for number in range(12):
        cluster.append("orders", 0, b"%d" % number, transaction="t")
        cluster.finish_transaction("orders", 0, "t", committed=number % 2 == 0)
    assert data(list(topic.tail(5))) == ["2", "4", "6", "8", "10"]


def test_a_tail_that_follows_shows_what_comes_and_new_lanes(ps: PubSub, cluster: MemoryCluster) -> None:
    topic = ps.create_topic("jobs", partitions=1, priorities=3)
    topic.publish(b"old").result(PATIENCE)
    topic.publish(b"before").result(PATIENCE)
    following = topic.tail(1, follow=True)
    assert next(following).data == b"before"
    with another(cluster) as other:
        for priority in (0, 1, 2):
            other.topic("jobs").publish(str(priority).encode(), priority=priority).result(PATIENCE)
    assert sorted((each.data, each.priority) for each in islice(following, 3)) == [
        (b"0", 0),
        (b"1", 1),
        (b"2", 2),
    ]


def test_a_tail_that_follows_ends_with_its_topic(ps: PubSub) -> None:
    topic = ps.create_topic("jobs", partitions=1)
    topic.publish(b"x").result(PATIENCE)
    following = topic.tail(follow=True)
    next(following)
    topic.delete()
    ps.create_topic("jobs", partitions=1)
    with pytest.raises(FailedPrecondition, match="made again"):
        next(following)
