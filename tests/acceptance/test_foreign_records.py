"""Topics that others made and records that others wrote: adopted as they are, delivered without loss of a byte."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_pubsub import FailedPrecondition, Message, PubSub, Subscription, Topic
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Deliveries, until

KEYS = [
    None,
    b"",
    b"plain",
    b"\xff\xfe\x00",
    "schlüssel".encode(),
    b"\xc3",
    b"\xed\xa0\x80",
    bytes(range(256)),
    b"k" * 5000,
]
VALUES = [None, b"", b"plain", bytes(range(256)), b"\xff" * 100_000]
HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    None,
    [("plain", b"text")],
    [("twice", b"1"), ("other", b""), ("twice", b"2"), ("twice", None)],
    [("binary", bytes(range(256))), ("ünïcödé", b"\xff")],
    [("", b"no name"), ("ps-attempt", b"not ours"), ("long", b"h" * 10_000)],
]


@pytest.fixture
def adopted(kafka: RunningKafka, ps: PubSub) -> tuple[Topic, Subscription]:
    """A topic that somebody else made, with an ordered subscription."""
    name = f"foreign-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(PATIENCE)
    topic = ps.adopt_topic(name)
    return topic, ps.create_subscription(f"{name}-s", topic, message_ordering=True)


@pytest.fixture
def stranger(kafka: RunningKafka) -> Producer:
    # The partitioner of Kafka's own clients; librdkafka's default spreads empty keys like missing ones.
    return Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})


def test_every_byte_of_a_strangers_record_arrives(
    adopted: tuple[Topic, Subscription], stranger: Producer
) -> None:
    topic, subscription = adopted
    written = [(key, value, headers) for key in KEYS for value in VALUES for headers in HEADERS]
    got: list[Message] = []

    def handle(message: Message) -> None:
        got.append(message)
        repr(message)
        assert message.attributes.keys() == {
            name for name, _ in message.headers if not name.startswith("ps-")
        }
        message.ack()

    with subscription.pull(handle) as stream:
        for key, value, headers in written:
            stranger.produce(topic.name, value, key, headers=headers)  # type: ignore[arg-type]  # list is invariant
        assert stranger.flush(PATIENCE) == 0
        until(lambda: stream.stats.acked == len(written))
    assert stream.stats.redelivered == 0
    for key in KEYS:
        ours = [
            (message.key, None if message.tombstone else message.data, message.headers)
            for message in got
            if message.key == key
        ]
        expected = [(each, value, headers or []) for each, value, headers in written if each == key]
        # Without a key there is no order.
        assert sorted(map(repr, ours)) == sorted(map(repr, expected))
        assert key is None or ours == expected
    texts = {message.ordering_key for message in got}
    assert len(texts) == len(KEYS)
    assert {None if text is None else text.encode("utf-8", "surrogateescape") for text in texts} == set(KEYS)


@pytest.mark.parametrize("key", [b"", b"\xff", b"\xfe"], ids=repr)
def test_a_key_that_is_not_text_keeps_its_order_like_any_other(
    adopted: tuple[Topic, Subscription], stranger: Producer, log: Deliveries, key: bytes
) -> None:
    topic, subscription = adopted

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"3" and message.delivery_attempt == 1:
                message.nack(delay=0)
            else:
                message.ack()

    with subscription.pull(handle):
        for number in range(10):
            stranger.produce(topic.name, b"%d" % number, key)
        stranger.flush(PATIENCE)
        log.wait_for(11)
    assert log.bodies == [b"0", b"1", b"2", b"3", b"3", *(b"%d" % number for number in range(4, 10))]


def test_our_messages_are_plain_records_to_others(
    adopted: tuple[Topic, Subscription], stranger: Producer, log: Deliveries
) -> None:
    """Our messages and a stranger's records with the same key go to the same partition, in the same order."""
    topic, subscription = adopted
    with subscription.pull(log.ack):
        for number in range(0, 40, 2):
            key = f"key-{number % 8}"
            topic.publish(b"%d" % number, ordering_key=key).result(PATIENCE)
            stranger.produce(topic.name, b"%d" % (number + 1), key.encode())
            stranger.flush(PATIENCE)
        log.wait_for(40)
    for numbers in log.by_key.values():
        assert [int(body) for body in numbers] == sorted(int(body) for body in numbers)


def test_without_the_right_to_create_everything_that_exists_can_be_used(
    kafka: RunningKafka, adopted: tuple[Topic, Subscription], log: Deliveries
) -> None:
    topic, subscription = adopted
    with PubSub(kafka.bootstrap, create=False) as modest:
        with pytest.raises(FailedPrecondition, match="create=False"):
            modest.create_topic(f"{topic.name}-new")
        with modest.subscription(subscription.name).pull(log.ack):
            modest.topic(topic.name).publish(b"x", ordering_key="key").result(PATIENCE)
            log.wait_for(1)
    assert log.all == [("key", b"x")]
