"""What a subscription hasn't finished, and the newest of a topic: looked at without a group, and nothing changes."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from kafka_pubsub import (
    DeadLetterPolicy,
    FailedPrecondition,
    InvalidArgument,
    Message,
    NotFound,
    PeekedMessage,
    PubSub,
    RetryPolicy,
    Subscription,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from tests.unit.dying import PATIENCE, publish, until

LATER = RetryPolicy(min_backoff=500, max_backoff=600)


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    ps.create_topic("orders", partitions=2)
    ps.create_topic("dead")
    policy = DeadLetterPolicy(topic="dead", max_attempts=5, on_exhausted="park")
    return ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=LATER, dead_letter=policy, ack_deadline=60
    )


def data(messages: list[PeekedMessage] | list[Message]) -> list[str]:
    return [each.data.decode() for each in messages]


def traces(backend: MemoryBackend, sub: Subscription) -> tuple[object, ...]:
    """All that a look could change: the group's positions and members, and the ends of all topics."""
    admin = backend.admin
    topics = admin.topic_names()
    positions = {topic: admin.group_offsets(sub.name, topic) for topic in topics}
    return (
        positions,
        admin.group_members(sub.name),
        {topic: admin.last_stable_offsets(topic) for topic in topics},
    )


def by_time(cluster: MemoryCluster, numbers: Iterable[int]) -> None:
    """Another producer's records, a second apart, in both partitions."""
    for number in numbers:
        cluster.append("orders", number % 2, b"%d" % number, timestamp=1e9 + number)


def test_unfinished_messages_come_in_order_and_nothing_changes(
    backend: MemoryBackend, sub: Subscription
) -> None:
    by_time(backend.cluster, range(6))
    before = traces(backend, sub)
    for _ in range(2):
        seen = list(sub.peek())
        assert data(seen) == ["0", "1", "2", "3", "4", "5"]
        assert {(each.state, each.next_due, each.delivery_attempt) for each in seen} == {("ready", None, 1)}
    assert data(list(sub.peek(2))) == ["0", "1"]
    assert traces(backend, sub) == before


def test_what_is_acked_is_gone_also_beyond_the_position(ps: PubSub, sub: Subscription) -> None:
    publish(ps, *((f"k{number}", b"%d" % number) for number in range(4)))
    with sub:
        kept, *others = (message for _ in range(4) for message in sub.receive(1, PATIENCE))
        for message in others:
            message.ack_with_response().result(PATIENCE)
        assert data(list(sub.peek())) == [kept.data.decode()]


def test_what_waits_for_a_redelivery_is_in_its_place(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("a", b"1"), ("a", b"2"), ("a", b"3"))
    with sub:
        sub.receive(1, PATIENCE)[0].nack()
        until(lambda: [each.state for each in sub.peek(1)] == ["waiting"])
    waiting, *others = sub.peek()
    assert (waiting.data, waiting.ordering_key, waiting.delivery_attempt) == (b"1", "a", 2)
    assert waiting.message_id.startswith("orders:")
    assert waiting.next_due is not None
    assert data(others) == ["2", "3"]


def test_a_parked_message_says_so(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("a", b"1"), ("a", b"2"))
    ps.update_subscription("billing", retry=RetryPolicy(min_backoff=0.001, max_backoff=0.002))
    with sub.pull(lambda message: message.nack()):
        until(lambda: "parked" in {each.state for each in sub.peek()})
    assert [(each.data, each.state) for each in sub.peek(1)] == [(b"1", "parked")]
    assert data(list(sub.peek())) == ["1", "2"]


def test_a_message_with_its_callback_is_leased(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("a", b"1"))
    go = threading.Event()
    with sub.pull(lambda message: go.wait(PATIENCE)):
        until(lambda: [each.state for each in sub.peek()] == ["leased"])
        go.set()


def test_a_peeked_message_has_no_lease(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("a", b"1"))
    (message,) = sub.peek()
    for call in (message.ack, message.nack, message.ack_with_response, lambda: message.extend(3)):
        with pytest.raises(FailedPrecondition, match="only looked at"):
            call()
    with pytest.raises(FailedPrecondition, match="only looked at"):
        _ = message.ack_id


def test_lanes_are_looked_at_as_one(ps: PubSub) -> None:
    topic = ps.create_topic("jobs", partitions=1, priorities=10, transient=True)
    sub = ps.create_subscription("workers", topic)
    topic.publish(b"low", priority=1).result(PATIENCE)
    topic.publish(b"default").result(PATIENCE)
    topic.publish(b"lost?", priority=9, durable=False).result(PATIENCE)
    expected = [(b"default", 4, True), (b"lost?", 9, False), (b"low", 1, True)]
    for found in (sub.peek(), topic.tail()):
        assert sorted((each.data, each.priority, each.durable) for each in found) == expected


def test_wrong_numbers_and_names_are_refused(ps: PubSub, sub: Subscription) -> None:
    with pytest.raises(InvalidArgument, match="max_messages"):
        sub.peek(0)
    with pytest.raises(InvalidArgument, match="max_messages"):
        next(ps.topic("orders").tail(-1))
    with pytest.raises(NotFound, match="nix"):
        ps.subscription("nix").peek()
    with pytest.raises(NotFound, match="nix"):
        next(ps.topic("nix").tail())
