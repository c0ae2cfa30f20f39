"""Delayed messages that wait: in ingest, in tiers, in a router's memory, at home and cancelled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from kafka_pubsub import InvalidArgument, PubSub, Topic
from kafka_pubsub.delays import role
from kafka_pubsub.delays.router import Router
from kafka_pubsub.delays.service import DelayRouter
from tests.support import until


@pytest.fixture
def topic(ps: PubSub) -> Topic:
    return ps.create_topic("orders", partitions=2)


def test_nothing_waits_where_nothing_was_delayed(ps: PubSub, topic: Topic) -> None:
    topic.publish(b"x").result(10)
    assert list(ps.delays.waiting()) == []


def test_a_relative_delay_begins_without_a_router(ps: PubSub, topic: Topic) -> None:
    due = datetime(2033, 1, 1, tzinfo=UTC)
    began = datetime.now(UTC) - timedelta(milliseconds=1)
    topic.publish(b"abc", ordering_key="k", delay=600).result(10)
    topic.publish(b"x", ordering_key="k", deliver_at=due).result(10)
    first, second = ps.delays.waiting()
    assert (first.topic, first.ordering_key, first.tier, first.size) == ("orders", "k", None, 3)
    assert first.due is not None
    assert began <= first.due - timedelta(seconds=600) <= datetime.now(UTC)
    assert second.due == due
    assert first.data is None


def test_each_message_is_counted_once_wherever_it_waits(ps: PubSub, topic: Topic) -> None:
    began = datetime.now(UTC)
    with DelayRouter(ps) as router:
        ids = {topic.publish(b"x", delay=delay).result(10): delay for delay in (1.4, 3.3, 700, 0.9)}
        seen = set()
        while router.metrics().get("home", 0) < 3:
            waiting = list(ps.delays.waiting())
            assert len({each.id for each in waiting}) == len(waiting)
            assert {each.id for each in waiting} <= set(ids)
            seen |= {(ids[each.id], each.tier) for each in waiting if each.tier is not None}
            for each in waiting:
                if each.due is not None:
                    assert each.due >= began + timedelta(seconds=ids[each.id])
        until(lambda: [ids[each.id] for each in ps.delays.waiting()] == [700])
    assert (700, 9) in seen


def test_a_message_that_is_home_does_not_wait_though_hops_before_it_are_unwritten(
    ps: PubSub, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "Router", partial(Router, pause=10**9))
    with DelayRouter(ps, tiers=12, partitions=1) as router:
        first = topic.publish(b"x", delay=600).result(10)
        until(lambda: router.metrics().get("hops"), "the first flush")
        second = topic.publish(b"x", delay=600).result(10)
        topic.publish(b"x", delay=0.05).result(10)
        until(lambda: router.metrics().get("home") == 1)
        assert {each.id for each in ps.delays.waiting()} == {first, second}
    assert {each.id for each in ps.delays.waiting()} == {first, second}


def test_one_message_is_shown_with_its_data(ps: PubSub, topic: Topic) -> None:
    published = topic.publish(b"abc", attributes={"a": "b"}, delay=600).result(10)
    topic.publish(b"other", delay=600).result(10)
    (found,) = ps.delays.waiting(published)
    assert (found.id, found.data, dict(found.attributes)) == (published, b"abc", {"a": "b"})
    with DelayRouter(ps) as router:
        until(lambda: router.metrics().get("hops", 0) >= 2)
        (found,) = ps.delays.waiting(published)
        assert (found.data, found.tier) == (b"abc", 9)
    assert list(ps.delays.waiting(published.rpartition(":")[0] + ":99")) == []
    assert list(ps.delays.waiting("orders:0:0")) == []
    with pytest.raises(InvalidArgument, match="message_id: must be TOPIC:PARTITION:OFFSET"):
        list(ps.delays.waiting("orders"))


def test_all_are_yielded_with_their_data_if_that_is_asked_for(ps: PubSub, topic: Topic) -> None:
    topic.publish(b"abc", attributes={"a": "b"}, delay=600).result(10)
    topic.publish(b"other", delay=600).result(10)
    assert [(each.data, dict(each.attributes)) for each in ps.delays.waiting(bodies=True)] == [
        (b"abc", {"a": "b"}),
        (b"other", {}),
    ]
    assert [each.data for each in ps.delays.waiting()] == [None, None]


def test_a_cancelled_message_does_not_wait(ps: PubSub, topic: Topic) -> None:
    with DelayRouter(ps):
        kept, gone = (topic.publish(b"x", delay=600).result(10) for _ in range(2))
        assert ps.delays.cancel(gone)
        assert [each.id for each in ps.delays.waiting()] == [kept]
