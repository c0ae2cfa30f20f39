"""The behaviour requirements of message ordering, BR-001 to BR-010, on a real Kafka."""

from __future__ import annotations

import logging
import threading

import pytest

from kafka_pubsub import Batching, FlowControl, InvalidArgument, Message, RetryPolicy
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

SOON = RetryPolicy(min_backoff=0, max_backoff=0)


def test_br_001_enable_ordering_on_topic(room: Room, log: Deliveries) -> None:
    topic = room.topic(message_ordering=True)
    assert topic.options.message_ordering is True
    subscription = room.subscription(topic)
    with subscription.pull(log.ack):
        all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(100))
        log.wait_for(100)
    assert log.bodies == [b"%d" % number for number in range(100)]


def test_br_002_enable_ordering_on_subscription(room: Room, log: Deliveries) -> None:
    subscription = room.subscription(topic := room.topic(), message_ordering=True)
    assert subscription.options.message_ordering is True
    release = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            release.wait(PATIENCE)
            message.ack()

    with subscription.pull(handle):
        all_stored(
            topic.publish(b"%d" % number, ordering_key=key) for number in range(3) for key in ("a", "b")
        )
        log.wait_for(2)
        until(lambda: sum(each.waiting for each in subscription.state().blocked) == 4)
        assert sorted(log.all) == [("a", b"0"), ("b", b"0")]
        release.set()
        log.wait_for(6)
    assert log.by_key == {key: [b"0", b"1", b"2"] for key in ("a", "b")}
    assert log.most_of_a_key == 1


def test_br_002_without_it_one_key_is_delivered_concurrently(room: Room, log: Deliveries) -> None:
    """The default of the seed: a subscription that didn't ask for order doesn't wait for acks of the key."""
    topic = room.topic()
    subscription = room.ps.create_subscription(f"{room.name}-plain", topic)
    assert subscription.options.message_ordering is False
    together = threading.Barrier(2)

    def handle(message: Message) -> None:
        with log.handling(message):
            together.wait(PATIENCE)
            message.ack()

    with subscription.pull(handle):
        all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(2))
        log.wait_for(2)
    assert log.most_of_a_key == 2


def test_br_003_publish_with_ordering_key(room: Room, log: Deliveries) -> None:
    """Small batches, slow batches and many keys mixed: the shape of a batch never shows in a key's order."""
    topic, subscription = room.pair()
    topic.configure(batching=Batching(max_messages=7, max_bytes=200, max_latency=0.02))
    keys = [f"key-{number}" for number in range(20)]
    with subscription.pull(log.ack):
        all_stored(topic.publish(b"%d" % number, ordering_key=key) for number in range(100) for key in keys)
        log.wait_for(2000)
    assert log.by_key == {key: [b"%d" % number for number in range(100)] for key in keys}


def test_br_003_threads_that_publish_to_keys_of_their_own(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair()

    def publish(key: str) -> None:
        all_stored(topic.publish(b"%d" % number, ordering_key=key) for number in range(300))

    threads = [threading.Thread(target=publish, args=(f"key-{number}",)) for number in range(4)]
    with subscription.pull(log.ack):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.wait_for(1200)
    assert log.by_key == {f"key-{number}": [b"%d" % each for each in range(300)] for number in range(4)}


def test_br_004_ordered_message_storage(room: Room, log: Deliveries) -> None:
    """Messages of a blocked key wait in their order, and apart from the other keys of its partition."""
    topic = room.topic(partitions=1)
    subscription = room.subscription(topic)
    blocked: list[Message] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"0" and message.ordering_key == "stuck":
                blocked.append(message)
            else:
                message.ack()

    with subscription.pull(handle):
        all_stored(
            topic.publish(b"%d" % number, ordering_key=key)
            for number in range(50)
            for key in ("stuck", "a", "b")
        )
        log.wait_for(101)
        (state,) = subscription.state().blocked
        assert (state.key, state.waiting, state.reason) == (b"stuck", 49, "leased, not acked yet")
        assert log.by_key["stuck"] == [b"0"]
        blocked[0].ack()
        log.wait_for(150)
    assert log.by_key == {key: [b"%d" % number for number in range(50)] for key in ("stuck", "a", "b")}


def test_br_005_sequential_delivery_per_key(room: Room, log: Deliveries) -> None:
    """The next message of a key comes after the ack of the message before, wherever that ack is given."""
    topic, subscription = room.pair(ack_deadline=600)
    held: list[Message] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            held.append(message)

    with subscription.pull(handle):
        all_stored(
            topic.publish(b"%d" % number, ordering_key=key) for number in range(3) for key in ("a", "b")
        )
        for number in range(3):
            log.wait_for(2 * (number + 1))
            until(lambda: subscription.state().in_flight == 2)
            assert len(log.all) == 2 * (number + 1)
            assert [message.data for message in held[-2:]] == [b"%d" % number] * 2
            for message in held[-2:]:
                message.ack()
    assert log.by_key == {key: [b"0", b"1", b"2"] for key in ("a", "b")}


@pytest.mark.parametrize("how", ["nack", "raise", "timeout"])
def test_br_006_ordering_with_redelivery(room: Room, log: Deliveries, how: str) -> None:
    topic, subscription = room.pair(ack_deadline=1, retry=SOON)

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"2" and message.delivery_attempt < 3:
                if how == "raise":
                    raise ValueError("not this time")
                if how == "nack":
                    message.nack()
                return
            message.ack()

    with subscription.pull(handle):
        all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(5))
        log.wait_for(7)
    assert log.bodies == [b"0", b"1", b"2", b"2", b"2", b"3", b"4"]


def test_br_007_mixed_ordering_keys(room: Room, log: Deliveries) -> None:
    """A key whose handler hangs leaves the others their whole throughput."""
    topic, subscription = room.pair()
    release = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.ordering_key == "slow":
                release.wait(PATIENCE)
            message.ack()

    with subscription.pull(handle, max_workers=8):
        topic.publish(b"0", ordering_key="slow").result(PATIENCE)
        log.wait_for(1)
        all_stored(
            topic.publish(b"%d" % number, ordering_key=f"key-{number % 100}") for number in range(5000)
        )
        log.wait_for(5001)
        release.set()
    delivered = log.by_key
    assert delivered.pop("slow") == [b"0"]
    assert delivered == {
        f"key-{number}": [b"%d" % each for each in range(number, 5000, 100)] for number in range(100)
    }


def test_br_007_the_throughput_of_keys_adds_up(room: Room, log: Deliveries) -> None:
    """As many handlers at once as there are keys: ten keys are done when all ten are in their handlers."""
    topic, subscription = room.pair()
    rounds = threading.Barrier(10)

    def handle(message: Message) -> None:
        with log.handling(message):
            rounds.wait(PATIENCE)
            message.ack()

    with subscription.pull(handle, max_workers=10):
        all_stored(
            topic.publish(b"%d" % number, ordering_key=f"key-{key}")
            for number in range(5)
            for key in range(10)
        )
        log.wait_for(50)
    assert (log.most_at_once, log.most_of_a_key) == (10, 1)


def test_br_008_no_ordering_key_messages(room: Room, log: Deliveries) -> None:
    """Messages without a key don't wait for each other, nor for a blocked key, and block no key."""
    topic = room.topic(partitions=1)
    subscription = room.subscription(topic)
    together = threading.Barrier(5)
    done = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.ordering_key == "blocked":
                done.wait(PATIENCE)
            elif message.ordering_key is None:
                together.wait(PATIENCE)
            message.ack()

    with subscription.pull(handle, flow=FlowControl(max_messages=10)):
        topic.publish(b"0", ordering_key="blocked").result(PATIENCE)
        log.wait_for(1)
        all_stored(topic.publish(b"%d" % number) for number in range(5))
        topic.publish(b"0", ordering_key="free").result(PATIENCE)
        log.wait_for(7)
        done.set()
    assert sorted(log.by_key[None]) == [b"%d" % number for number in range(5)]


def test_br_009_ordering_throughput_limits(
    room: Room, log: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that carries most of a topic is worked off in sequence, and the user is told, once."""
    topic, subscription = room.pair()
    topic.publish(b"0", ordering_key="hot").result(PATIENCE)
    hot = [0]

    def handle(message: Message) -> None:
        if message.ordering_key == "hot":
            hot[0] += 1
        message.ack()

    def warnings() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.name == "kafka_pubsub.subscriber" and "ordering key" in record.getMessage()
        ]

    with caplog.at_level(logging.WARNING), subscription.pull(handle):
        for _ in range(3):
            for number in range(35_000):
                topic.publish(b"x", ordering_key="hot" if number % 10 else f"key-{number}")
            topic.flush(PATIENCE)
        until(lambda: hot[0] == 94_501, "every message of the hot key")
    (warning,) = warnings()
    assert subscription.name in warning
    assert "'hot'" in warning
    assert "spread" in warning


def test_br_010_ordering_key_format(room: Room) -> None:
    """Any text of UTF-8 is a key, and no two of them are the same: nothing is trimmed, folded or normalised."""
    keys = [
        "k",
        "K",
        "user:123",
        " ",
        "  ",
        "\0",
        "a b\tc\n",
        "\u00e9",
        "e\u0301",
        "日本語",
        "\u200b",
        "🙂" * 256,
    ]
    topic, subscription = room.pair()
    all_stored(topic.publish(key.encode(), ordering_key=key) for key in [*keys, "x" * 1024])
    seen: set[str | None] = set()
    while len(seen) < len(keys) + 1 and (messages := subscription.receive(100, timeout=PATIENCE)):
        for message in messages:
            assert message.ordering_key is not None
            assert message.data == message.key == message.ordering_key.encode()
            seen.add(message.ordering_key)
            message.ack()
    assert seen == {*keys, "x" * 1024}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", "Ordering key cannot be empty"),
        ("x" * 1025, "Ordering key exceeds maximum length of 1024 bytes"),
        ("é" * 513, "Ordering key exceeds maximum length of 1024 bytes"),
        ("🙂" * 257, "Ordering key exceeds maximum length of 1024 bytes"),
    ],
    ids=["empty", "ascii", "two bytes", "four bytes"],
)
def test_br_010_ordering_key_format_is_measured_in_bytes(room: Room, key: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        room.topic().publish(b"x", ordering_key=key)
    assert (refused.value.code, refused.value.message) == (3, text)
