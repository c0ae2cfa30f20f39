"""The acceptance criteria of message ordering, AC-001 to AC-010, in their own examples, on a real Kafka."""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub import Batching, InvalidArgument, Message, PubSub
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until


def test_ac_001_create_topic_and_publish_with_ordering_key(room: Room) -> None:
    topic = room.topic()
    message_id = topic.publish(b"event-1", ordering_key="user-123").result(PATIENCE)
    assert message_id.startswith(topic.name)


def test_ac_002_messages_with_same_key_delivered_in_order(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair()
    with subscription.pull(log.ack):
        for body in (b"first", b"second", b"third"):
            topic.publish(body, ordering_key="user-123").result(PATIENCE)
        log.wait_for(3)
    assert log.bodies == [b"first", b"second", b"third"]


def test_ac_003_sequential_processing_per_key(room: Room, log: Deliveries) -> None:
    topic = room.topic(message_ordering=True)
    subscription = room.subscription(topic)
    working = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            working.wait(0.05)
            message.ack()

    with subscription.pull(handle, max_workers=8):
        all_stored(topic.publish(b"msg-%d" % number, ordering_key="user-123") for number in range(5))
        log.wait_for(5)
    assert log.bodies == [b"msg-%d" % number for number in range(5)]
    assert log.most_at_once == 1


def test_ac_004_different_keys_concurrent(room: Room, log: Deliveries) -> None:
    topic = room.topic(message_ordering=True)
    subscription = room.subscription(topic)
    everybody = threading.Barrier(3)

    def handle(message: Message) -> None:
        with log.handling(message):
            everybody.wait(PATIENCE)  # passes only if all three are here at once
            message.ack()

    with subscription.pull(handle):
        for user in ("user-1", "user-2", "user-3"):
            topic.publish(f"{user}-msg1".encode(), ordering_key=user).result(PATIENCE)
        log.wait_for(3)
    assert log.most_at_once == 3


def test_ac_005_ordering_preserved_on_redelivery(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair(ack_deadline=1)

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"first" and message.delivery_attempt == 1:
                return  # neither ack nor nack: its deadline passes
            message.ack()

    with subscription.pull(handle):
        topic.publish(b"first", ordering_key="user-123").result(PATIENCE)
        topic.publish(b"second", ordering_key="user-123").result(PATIENCE)
        log.wait_for(3)
    assert log.bodies == [b"first", b"first", b"second"]


def test_ac_006_no_ordering_key_not_blocked(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair()

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.ordering_key is None:
                message.ack()

    with subscription.pull(handle):
        topic.publish(b"blocked", ordering_key="user-123").result(PATIENCE)
        until(lambda: b"blocked" in log.bodies)
        topic.publish(b"behind", ordering_key="user-123").result(PATIENCE)
        topic.publish(b"unordered").result(PATIENCE)
        until(lambda: b"unordered" in log.bodies)
        assert b"behind" not in log.bodies


def test_ac_007_multiple_subscriptions_ordered_independently(room: Room) -> None:
    topic, first = room.pair()
    second = room.subscription(topic)
    logs = Deliveries(), Deliveries()
    with first.pull(logs[0].ack), second.pull(logs[1].ack):
        topic.publish(b"first", ordering_key="user-123").result(PATIENCE)
        topic.publish(b"second", ordering_key="user-123").result(PATIENCE)
        for log in logs:
            log.wait_for(2)
    assert [log.bodies for log in logs] == [[b"first", b"second"]] * 2


def test_ac_008_ordering_key_validation(room: Room) -> None:
    topic = room.topic()
    with pytest.raises(InvalidArgument) as empty:
        topic.publish(b"test", ordering_key="")
    assert (empty.value.code, empty.value.message) == (3, "Ordering key cannot be empty")
    with pytest.raises(InvalidArgument) as long:
        topic.publish(b"test", ordering_key="x" * 1025)
    assert (long.value.code, long.value.message) == (3, "Ordering key exceeds maximum length of 1024 bytes")


def test_ac_008_a_refused_key_publishes_nothing_and_pauses_nothing(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair()
    for wrong in ("", "x" * 1025):
        with pytest.raises(InvalidArgument):
            topic.publish(b"wrong", ordering_key=wrong)
    with subscription.pull(log.ack):
        topic.publish(b"right", ordering_key="x" * 1024).result(PATIENCE)
        log.wait_for(1)
    assert log.bodies == [b"right"]


def test_ac_009_ordering_key_accepted_without_explicit_enable(room: Room) -> None:
    topic = room.topic()
    assert topic.options.message_ordering is None
    assert isinstance(topic.publish(b"test", ordering_key="user-123").result(PATIENCE), str)


def test_error_ordering_not_enabled(ps: PubSub, room: Room, log: Deliveries) -> None:
    """A topic that was told `message_ordering=False` refuses keys, and says so as the seed does."""
    topic = room.topic(message_ordering=False)
    subscription = room.subscription(topic)
    # Whichever handle, whichever process: only the stored setting counts.
    for handle in (topic, ps.topic(topic.name)):
        with pytest.raises(InvalidArgument) as refused:
            handle.publish(b"test", ordering_key="user-123").result(PATIENCE)
        assert refused.value.code == 3
        assert refused.value.message == "Message ordering must be enabled on topic to use ordering keys"
    with subscription.pull(log.ack):
        topic.publish(b"without a key").result(PATIENCE)
        log.wait_for(1)
    assert log.all == [(None, b"without a key")]


def test_error_ordering_not_enabled_ends_when_it_is_enabled(room: Room) -> None:
    topic = room.topic(message_ordering=False)
    with pytest.raises(InvalidArgument):
        topic.publish(b"test", ordering_key="user-123").result(PATIENCE)
    topic.configure(message_ordering=True)
    assert topic.publish(b"test", ordering_key="user-123").result(PATIENCE)


def test_ac_010_batching_with_ordering_keys(room: Room) -> None:
    topic = room.topic()
    topic.configure(batching=Batching(max_messages=10, max_latency=0.05))
    message_ids = all_stored(
        topic.publish(b"msg-%d" % number, ordering_key=f"user-{number % 5}") for number in range(20)
    )
    assert len(set(message_ids)) == 20
    assert all(isinstance(each, str) for each in message_ids)
