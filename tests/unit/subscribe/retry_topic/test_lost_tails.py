"""Logs that have lost what was read, and have grown again: refused, until an operator says where to go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from kafka_pubsub import (
    FailedPrecondition,
    InvalidArgument,
    LostTail,
    Message,
    PubSub,
    RetryPolicy,
    Subscription,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.model import TopicPartition
from tests.support import until

RETRY = "orders.sub.billing.retry"


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def pubsub(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as made:
        made.create_topic("orders", partitions=1, message_ordering=True)
        yield made


@pytest.fixture
def billing(pubsub: PubSub) -> Subscription:
    return pubsub.create_subscription(
        "billing", topic="orders", message_ordering=True, retry=RetryPolicy(min_backoff=60, max_backoff=60)
    )


def _publish(pubsub: PubSub, *texts: str) -> None:
    for text in texts:
        pubsub.topic("orders").publish(text.encode(), ordering_key=text).result(10)


def _pull(
    subscription: Subscription, count: int, settle: Callable[[Message], None] = Message.ack
) -> list[tuple[str, int]]:
    got: list[tuple[str, int]] = []
    lock = threading.Lock()

    def handle(message: Message) -> None:
        settle(message)
        with lock:
            got.append((message.data.decode(), message.delivery_attempt))

    with subscription.pull(handle) as stream:
        until(lambda: len(got) >= count or stream.done())
    stream.result(10)
    return got


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def _main_lost(backend: MemoryBackend, pubsub: PubSub, billing: Subscription) -> None:
    """Ten were acked; five of them are lost, and eight others lie from there on."""
    _publish(pubsub, *_names("old", 10))
    assert len(_pull(billing, 10)) == 10
    backend.cluster.lose_tail("orders", 0, 5)
    _publish(pubsub, *_names("new", 8))


def test_a_topic_that_lost_messages_is_refused_and_the_error_says_what_to_do(
    backend: MemoryBackend, pubsub: PubSub, billing: Subscription
) -> None:
    _main_lost(backend, pubsub, billing)
    with pytest.raises(FailedPrecondition, match=r"orders\[0\] was read up to offset 9") as refused:
        _pull(billing, 1)
    assert "recover_subscription('billing', start='oldest')" in str(refused.value)
    assert [call.method for call in refused.value.calls] == ["recover_subscription"] * 2


@pytest.mark.parametrize(("start", "skipped", "then"), [("oldest", 0, 8), ("end", 8, 0)])
def test_an_operator_says_where_to_go_on(
    backend: MemoryBackend, pubsub: PubSub, billing: Subscription, start: str, skipped: int, then: int
) -> None:
    _main_lost(backend, pubsub, billing)
    lost = pubsub.recover_subscription("billing", start=start)  # type: ignore[arg-type]
    assert lost == [LostTail("orders", 0, 5, lost=5, skipped=skipped)]
    _publish(pubsub, "last")
    expected = [*_names("new", 8)[:then], "last"]
    assert sorted(data for data, _ in _pull(billing, len(expected))) == sorted(expected)
    assert pubsub.recover_subscription("billing") == []


def test_what_was_acked_below_what_is_lost_stays_acked(
    backend: MemoryBackend, pubsub: PubSub, billing: Subscription
) -> None:
    _publish(pubsub, *_names("old", 4))
    done, acked = threading.Event(), list[str]()

    def handle(message: Message) -> None:
        if (
            message.data == b"old0"
        ):  # the message isn't settled, so the others are finished above the position
            done.wait(10)
            message.nack()
        else:
            message.ack_with_response().add_done_callback(lambda _: acked.append(message.data.decode()))

    with billing.pull(handle) as stream:
        until(lambda: len(acked) == 3)
        done.set()
        stream.cancel()
    backend.cluster.lose_tail("orders", 0, 3)
    _publish(pubsub, "new")
    assert pubsub.recover_subscription("billing") != []
    assert "old1" not in {data for data, _ in _pull(billing, 1)}


def test_a_retry_topic_that_lost_messages_is_refused_and_gone_on_from(
    backend: MemoryBackend, pubsub: PubSub, billing: Subscription
) -> None:
    _publish(pubsub, *_names("a", 3))
    _pull(billing, 3, lambda message: message.nack(delay=1))
    place = TopicPartition(RETRY, 0)
    until(lambda: backend.cluster.log(place).end >= 3)
    assert len(_pull(billing, 1, lambda message: message.nack(delay=0.1))) >= 1
    backend.cluster.lose_tail(RETRY, 0, 1)
    with pytest.raises(FailedPrecondition, match=r"retry\[0\] was read up to"):
        _pull(billing, 1)
    (lost,) = pubsub.recover_subscription("billing", start="end")
    assert (lost.topic, lost.start, lost.skipped) == (RETRY, 1, 0)
    _publish(pubsub, "last")
    assert "last" in {data for data, _ in _pull(billing, 1)}


def test_a_stream_that_is_open_ends_when_its_log_loses_what_it_read(
    backend: MemoryBackend, pubsub: PubSub, billing: Subscription
) -> None:
    _publish(pubsub, *_names("old", 10))
    got: list[bytes] = []

    def handle(message: Message) -> None:
        got.append(message.data)
        message.ack()

    stream = billing.pull(handle)
    until(lambda: len(got) == 10)
    backend.cluster.lose_tail("orders", 0, 5)
    with pytest.raises(FailedPrecondition, match="lost its end"):
        stream.result(20)


def test_positions_that_the_broker_forgot_do_not_hide_a_loss(
    backend: MemoryBackend, pubsub: PubSub, billing: Subscription
) -> None:
    _main_lost(backend, pubsub, billing)
    backend.cluster.forget_offsets("billing")
    with pytest.raises(FailedPrecondition, match="lost its end"):
        _pull(billing, 1)
    assert pubsub.recover_subscription("billing") == [LostTail("orders", 0, 5, lost=5, skipped=0)]
    assert len(_pull(billing, 8)) == 8


def test_open_streams_are_not_recovered(
    pubsub: PubSub, backend: MemoryBackend, billing: Subscription
) -> None:
    _main_lost(backend, pubsub, billing)
    backend.cluster.group("billing").join(None, "other", ["orders"], 60.0, backend.cluster.clock.now())
    with pytest.raises(FailedPrecondition, match="members"):
        pubsub.recover_subscription("billing")
    with pytest.raises(InvalidArgument, match="start"):
        pubsub.recover_subscription("billing", start="newest")  # type: ignore[arg-type]
