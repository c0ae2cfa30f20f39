"""Cancelling delayed messages over memory: in ingest, in a tier, too late, without a router."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from kafka_pubsub import DeadlineExceeded, InvalidArgument, PubSub, Topic
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.log.memory import MemoryBackend
from tests.support import until
from tests.unit.delays.test_role import bodies, stored

TIERS = 12


@pytest.fixture
def topic(ps: PubSub) -> Topic:
    return ps.create_topic("orders", partitions=2)


def test_a_cancelled_message_is_not_delivered_and_its_neighbours_are(
    ps: PubSub, topic: Topic, backend: MemoryBackend
) -> None:
    with DelayRouter(ps, tiers=TIERS) as router:
        futures = [topic.publish(b"%d" % n, ordering_key="k", delay=3.2) for n in range(3)]
        ids = [future.result(10) for future in futures]
        until(lambda: router.metrics().get("hops", 0) >= 3)
        assert topic.cancel(ids[1]) is True
        assert topic.cancel(ids[1]) is True, "it is cancelled"
        until(lambda: router.metrics().get("home") == 2)
        until(lambda: router.metrics().get("cancelled") == 1)
        assert bodies(backend) == [b"0", b"2"]
        assert topic.cancel(ids[0]) is False
        assert topic.cancel(ids[1]) is False, "nothing waits any more"


def test_a_message_is_cancelled_that_no_router_has_seen(
    ps: PubSub, topic: Topic, backend: MemoryBackend
) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    ids = [
        topic.publish(b"x", delay=3000).result(10),
        topic.publish(b"y", ordering_key="k", deliver_at=due).result(10),
    ]
    with DelayRouter(ps):
        assert [topic.cancel(each) for each in ids] == [True, True]
    assert bodies(backend) == []


def test_a_cancelled_message_stays_cancelled_when_routers_change(
    ps: PubSub, topic: Topic, backend: MemoryBackend
) -> None:
    with DelayRouter(ps, tiers=TIERS):
        kept, gone = (topic.publish(body, delay=1.6).result(10) for body in (b"kept", b"gone"))
        assert topic.cancel(gone)
    with DelayRouter(ps, tiers=TIERS):
        until(lambda: bodies(backend) == [b"kept"])
        until(lambda: topic.cancel(kept) is False)
    with DelayRouter(ps, tiers=TIERS) as router:
        topic.publish(b"next", delay=0.1).result(10)
        until(lambda: len(bodies(backend)) == 2)
    assert router.metrics().get("home") == 1


def test_the_answer_needs_no_router(ps: PubSub, topic: Topic, backend: MemoryBackend) -> None:
    late = topic.publish(b"late", delay=0.01).result(10)
    gone = topic.publish(b"gone", delay=600).result(10)
    due = time.time() + 0.05
    until(lambda: time.time() > due)
    assert topic.cancel(late) is False
    assert topic.cancel(gone) is True
    with DelayRouter(ps) as router:
        until(lambda: router.metrics().get("home") == 1)
    assert bodies(backend) == [b"late"]


def test_an_answer_that_can_not_be_read_is_not_guessed(
    ps: PubSub, topic: Topic, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's open transaction hides the request."""
    message_id = topic.publish(b"x", delay=600).result(10)
    ends = backend.admin.last_stable_offsets(INGEST)
    monkeypatch.setattr(backend.admin, "last_stable_offsets", lambda name: ends)
    with pytest.raises(DeadlineExceeded, match="couldn't be read in time"):
        topic.cancel(message_id, timeout=0.1)


def test_what_was_never_delayed_is_not_cancelled(ps: PubSub, topic: Topic) -> None:
    assert topic.cancel(topic.publish(b"x").result(10)) is False
    assert topic.cancel(f"{INGEST}:0:0") is False, "there are no tiers"
    with DelayRouter(ps, tiers=TIERS):
        topic.publish(b"x", delay=600).result(10)
        assert topic.cancel(f"{INGEST}:0:99") is False
        assert topic.cancel(f"{INGEST}:99:0") is False


@pytest.mark.parametrize("message_id", ["", "orders", "orders:0", "orders:0:unknown", "orders:x:1", 5, None])
def test_an_id_that_is_none_is_refused(topic: Topic, message_id: str) -> None:
    with pytest.raises(InvalidArgument, match="message_id: must be TOPIC:PARTITION:OFFSET"):
        topic.cancel(message_id)


def test_a_message_of_another_topic_is_refused(ps: PubSub, topic: Topic) -> None:
    other = ps.create_topic("others")
    with DelayRouter(ps, tiers=TIERS):
        message_id = topic.publish(b"x", delay=600).result(10)
        with pytest.raises(InvalidArgument, match="is a message of topic 'orders', not of 'others'"):
            other.cancel(message_id)


def test_requests_are_no_messages(ps: PubSub, topic: Topic, backend: MemoryBackend) -> None:
    with DelayRouter(ps, tiers=TIERS) as router:
        message_id = topic.publish(b"x", delay=1.2).result(10)
        assert topic.cancel(message_id)
        until(lambda: router.metrics().get("cancelled") == 1)
        assert router.metrics().get("home", 0) == router.metrics().get("dead", 0) == 0
    assert stored(backend, "orders") == []
