"""How many delayed messages wait and how late the first is, by a few requests and without a router."""

from __future__ import annotations

import pytest

from kafka_pubsub import DelayRouter, PubSub
from kafka_pubsub.delays.overdue import DelayFigures, look_at_delays
from kafka_pubsub.log.memory.clock import VirtualClock


def figures(ps: PubSub) -> DelayFigures:
    cluster = ps._cluster
    layout = cluster.delay_topics.find()
    assert layout is not None
    return look_at_delays(cluster.backend, layout, cluster.wall_time())


def test_messages_wait_and_are_overdue_while_no_router_runs() -> None:
    clock = VirtualClock()
    with PubSub.in_memory(clock=clock, services=False) as ps:
        topic = ps.create_topic("orders")
        topic.publish(b"x", delay=100).result(10)
        topic.publish(b"y", delay=1000).result(10)
        assert figures(ps) == DelayFigures(2, 0.0)
        clock.advance(90)
        assert figures(ps).overdue == 0.0
        clock.advance(40)
        found = figures(ps)
        assert found.waiting == 2
        assert found.overdue == pytest.approx(30, abs=1)


def test_a_router_that_ends_leaves_messages_in_the_tiers_that_become_overdue() -> None:
    clock = VirtualClock()
    with PubSub.in_memory(clock=clock, services=False) as ps:
        topic = ps.create_topic("orders")
        with DelayRouter(ps) as router:
            router.wait_until_running()
            topic.publish(b"x", delay=300).result(10)
            clock.advance(20)
            assert figures(ps).overdue == 0.0
        clock.advance(300)
        found = figures(ps)
        assert found.waiting >= 1
        assert 0 < found.overdue <= 300


def test_what_is_at_home_is_neither() -> None:
    clock = VirtualClock()
    with PubSub.in_memory(clock=clock) as ps:
        ps.create_topic("orders").publish(b"x", delay=5).result(10)
        sub = ps.create_subscription("billing", topic="orders", start="earliest")
        with sub.pull(lambda message: message.ack()) as stream:
            clock.advance(10)
            assert stream.stats.acked == 1
        clock.advance(100)
        assert figures(ps).overdue == 0.0
