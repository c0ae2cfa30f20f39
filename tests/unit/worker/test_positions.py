"""Positions of subscriptions: shown with their lag, and moved while no member receives."""

from __future__ import annotations

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, Message, PubSub
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.worker.positions import Position, move_positions, read_positions
from tests.support import until


def publish(ps: PubSub, count: int) -> None:
    for number in range(count):
        ps.topic("orders").publish(b"%d" % number, ordering_key="k").result(10)


def receive(ps: PubSub, count: int) -> list[bytes]:
    """Receives and acks messages, as many as there are to be."""
    found = list[bytes]()

    def take(message: Message) -> None:
        found.append(message.data)
        message.ack()

    with ps.subscription("bill").pull(take):
        until(lambda: len(found) >= count)
    return found


@pytest.fixture
def orders(pubsub: PubSub) -> PubSub:
    pubsub.create_topic("orders", partitions=1)
    pubsub.create_subscription("bill", "orders", message_ordering=True)
    publish(pubsub, 5)
    return pubsub


def where(ps: PubSub) -> list[Position]:
    return read_positions(ps._cluster.backend, ["bill", "missing"])


def test_positions_have_their_lag_and_move_back_and_forth(orders: PubSub) -> None:
    assert where(orders) == [("orders", 0, 0, 5)]
    assert receive(orders, 5) == [b"0", b"1", b"2", b"3", b"4"]
    assert where(orders) == [("orders", 0, 5, 0)]
    backend = orders._cluster.backend
    move_positions(backend, ["bill"], {TopicPartition("orders", 0): 3})
    assert where(orders) == [("orders", 0, 3, 2)]
    assert receive(orders, 2) == [b"3", b"4"]
    move_positions(backend, ["bill"], {TopicPartition("orders", 0): 99})
    assert where(orders) == [("orders", 0, 5, 0)], "no position lies beyond the last message"
    move_positions(backend, ["bill"], None)
    assert receive(orders, 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_was_acked_out_of_order_comes_again_after_a_move(orders: PubSub) -> None:
    orders.topic("orders").publish(b"other", ordering_key="other").result(10)
    acked = list[bytes]()

    def take(message: Message) -> None:
        if message.data == b"other":
            message.ack()
            acked.append(message.data)

    with orders.subscription("bill").pull(take):
        until(lambda: acked)
    backend = orders._cluster.backend
    move_positions(backend, ["bill"], {TopicPartition("orders", 0): 0})
    assert sorted(receive(orders, 6)) == [b"0", b"1", b"2", b"3", b"4", b"other"]


def test_nothing_moves_while_a_member_receives(orders: PubSub) -> None:
    backend = orders._cluster.backend
    with orders.subscription("bill").pull(lambda message: None) as stream:
        until(lambda: stream.joined)
        with pytest.raises(FailedPrecondition, match="members"):
            move_positions(backend, ["bill"], None, patience=0)


def test_a_partition_that_is_not_there_is_named(orders: PubSub) -> None:
    backend = orders._cluster.backend
    with pytest.raises(InvalidArgument, match=r"orders-7.*the topics are orders"):
        move_positions(backend, ["bill"], {TopicPartition("orders", 7): 0})


def test_positions_of_causal_topics_stay(pubsub: PubSub) -> None:
    pubsub.create_topic("causal", partitions=1, causal=True)
    pubsub.create_subscription("bill", "causal")
    backend = pubsub._cluster.backend
    with pytest.raises(FailedPrecondition, match="causal order"):
        move_positions(backend, ["bill"], None)


def test_lanes_have_positions_of_their_own(pubsub: PubSub) -> None:
    pubsub.create_topic("orders", partitions=1, priorities=3)
    pubsub.create_subscription("bill", "orders")
    pubsub.topic("orders").publish(b"x", priority=2).result(10)
    backend = pubsub._cluster.backend
    found = {each.topic: each.lag for each in read_positions(backend, ["bill"])}
    assert sum(found.values()) == 1
    assert len(found) > 1
    move_positions(backend, ["bill"], {TopicPartition(topic, 0): 1 for topic, lag in found.items() if lag})
    assert sum(each.lag for each in read_positions(backend, ["bill"])) == 0
