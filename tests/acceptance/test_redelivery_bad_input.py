"""Wrong policies, records in the retry topic that nobody of ours wrote, topics that go away: said, and nothing lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kafka_pubsub import (
    DeadLetterPolicy,
    FailedPrecondition,
    InvalidArgument,
    Message,
    NotFound,
    RetryPolicy,
    Subscription,
    Topic,
)
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.model import Header
from kafka_pubsub.subscribe.formats.record import RETRY_HEADER, RetryInfo, encode
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

QUICK = RetryPolicy(min_backoff=0.01, max_backoff=0.1)


@pytest.fixture
def cluster(kafka: RunningKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def stranger(kafka: RunningKafka) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    yield producer
    assert producer.flush(PATIENCE) == 0


def retry_topic(topic: Topic, sub: Subscription) -> str:
    return f"{topic.name}.sub.{sub.name}.retry"


def remove(cluster: AdminClient, topic: str) -> None:
    cluster.delete_topics([topic])[topic].result(PATIENCE)
    until(lambda: topic not in cluster.list_topics(timeout=PATIENCE).topics, "the deletion")


# Policies


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (lambda room: {"retry": RetryPolicy(min_backoff=5, max_backoff=1)}, InvalidArgument, "min_backoff 5 s"),
        (lambda room: {"dead_letter": policy("dead", 0)}, InvalidArgument, "max_attempts must be at least 1"),
        (lambda room: {"dead_letter": policy("dead", 101)}, InvalidArgument, "max_attempts must be at most 100"),
        (lambda room: {"dead_letter": policy(f"{room.name}-t1")}, InvalidArgument, r"dead_letter\.topic"),
        (lambda room: {"dead_letter": policy("a.sub.b.retry")}, InvalidArgument, r"dead_letter\.topic"),
        (lambda room: {"dead_letter": policy(f"{room.name}-t1.sub.{room.name}-s2.retry")}, InvalidArgument, "reserved"),
        (lambda room: {"dead_letter": policy("")}, InvalidArgument, r"dead_letter\.topic"),
        (lambda room: {"dead_letter": policy("nowhere-to-be-found")}, NotFound, r"dead_letter\.topic .*create_topic"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_work_is_refused_by_name_and_nothing_is_made(
    room: Room,
    cluster: AdminClient,
    options: Callable[[Room], dict[str, Any]],
    error: type[Exception],
    text: str,
) -> None:
    topic = room.topic()
    with pytest.raises(error, match=text):
        room.subscription(topic, **options(room))
    assert not [name for name in cluster.list_topics(timeout=PATIENCE).topics if f"{topic.name}.sub." in name]
    sub = room.subscription(topic)
    before = sub.options
    with pytest.raises(error, match=text):
        room.ps.update_subscription(sub.name, **options(room))
    assert sub.options == before


def policy(topic: str, attempts: int = 5) -> DeadLetterPolicy:
    return DeadLetterPolicy(topic=topic, max_attempts=attempts)


# Records in the retry topic that can't be read

Headers = Callable[[str], list[Header]]


def info(topic_id: str, partition: int = 0) -> RetryInfo:
    return RetryInfo(topic_id, partition, 7, 2)


BROKEN: dict[str, tuple[Headers, str]] = {
    "no header": (lambda topic_id: [("kind", b"text")], "0 ps-retry headers"),
    "an empty one": (lambda topic_id: [(RETRY_HEADER, None)], "empty"),
    "damaged": (lambda topic_id: [(RETRY_HEADER, encode(info(topic_id))[:-1] + b"x")], "damaged"),
    "rubbish": (lambda topic_id: [(RETRY_HEADER, b"\x01rubbish")], "damaged"),
    "no version's": (lambda topic_id: [(RETRY_HEADER, b"\x09" + encode(info(topic_id))[1:])], "damaged"),
    "another topic's": (lambda topic_id: [(RETRY_HEADER, encode(info("another")))], "another"),
    "another partition's": (lambda topic_id: [(RETRY_HEADER, encode(info(topic_id, 3)))], "partition 3"),
    "an origin of nobody's": (
        lambda topic_id: [(RETRY_HEADER, encode(RetryInfo(topic_id, 0, 10**9)))],
        "offset 1000000000, lies beyond",
    ),
    "two": (lambda topic_id: [(RETRY_HEADER, encode(info(topic_id)))] * 2, "2 ps-retry headers"),
}


def write_broken(
    kafka: RunningKafka, stranger: Producer, topic: Topic, sub: Subscription
) -> dict[bytes, tuple[bytes, list[Header], str]]:
    """A record of each kind, in partition 0 of the retry topic; by their bytes, the kind and why it is broken."""
    written = {}
    topic_id = id_of(kafka, topic)
    for number, (name, (headers, why)) in enumerate(BROKEN.items()):
        body, key, made = b"\x00\xff" + name.encode(), b"\xfe%d" % number, headers(topic_id)
        stranger.produce(retry_topic(topic, sub), body, key, partition=0, headers=list(made))
        written[body] = (key, made, why)
    assert stranger.flush(PATIENCE) == 0
    return written


def id_of(kafka: RunningKafka, topic: Topic) -> str:
    """Kafka's id of the topic, as records of ours name it."""
    backend = KafkaBackend(kafka.bootstrap)
    try:
        return backend.admin.topic(topic.name).topic_id
    finally:
        backend.close()


def test_what_cannot_be_read_goes_to_the_dead_letters_with_all_its_bytes(
    kafka: RunningKafka, room: Room, stranger: Producer, log: Deliveries
) -> None:
    dead_letter_topics = room.topic(partitions=1)
    inspector = room.subscription(dead_letter_topics)
    topic, sub = room.pair(retry=QUICK, dead_letter=policy(dead_letter_topics.name))
    written = write_broken(kafka, stranger, topic, sub)
    # By its body: where a session is lost on a busy machine, a dead letter or a message comes once more.
    found: dict[bytes, Message] = {}
    with sub.pull(log.ack):
        all_stored([topic.publish(b"%d" % at, ordering_key=f"k{at % 5}") for at in range(50)])
        while len(found) < len(written):
            for message in inspector.receive(10, timeout=PATIENCE):
                found[message.data] = message
                message.ack()
        log.wait_for_distinct(50)
    assert found.keys() == written.keys()
    for message in found.values():
        key, headers, why = written[message.data]
        assert message.key == key
        kept = [header for header in message.headers if not header[0].startswith("ps-dead-")]
        assert kept == headers
        assert why in message_headers(message)["ps-dead-reason"]
        assert message_headers(message)["ps-dead-subscription"] == sub.name
    assert set(log.bodies) == {b"%d" % at for at in range(50)}, "none of them was delivered"


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    """How often it was logged."""
    return sum(text in each.getMessage() for each in caplog.records)


def message_headers(message: Message) -> dict[str, str]:
    return {name: (value or b"").decode("utf-8", "replace") for name, value in message.headers}


def test_without_dead_letters_it_stays_where_it_is_and_is_reported(
    kafka: RunningKafka, room: Room, stranger: Producer, log: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    topic, sub = room.pair(retry=QUICK)
    written = write_broken(kafka, stranger, topic, sub)
    with caplog.at_level(logging.WARNING, "kafka_pubsub"), sub.pull(log.ack):
        all_stored([topic.publish(b"%d" % at, ordering_key=f"k{at % 5}") for at in range(50)])
        log.wait_for(50)
        until(lambda: said(caplog, "unreadable retry record") >= len(written), "one warning for each")
    dead_letter_topics = room.topic(partitions=1)
    inspector = room.subscription(dead_letter_topics)
    room.ps.update_subscription(sub.name, dead_letter=policy(dead_letter_topics.name))
    found: set[bytes] = set()
    with sub.pull(log.ack):  # nothing was lost: whoever wants them has them now
        while len(found) < len(written):
            messages = inspector.receive(10, timeout=PATIENCE)
            found.update(message.data for message in messages)
            inspector.acknowledge([message.ack_id for message in messages])
    assert found == written.keys()
    assert len(log.all) == 50


# Topics that go away


def first_fails(message: Message) -> None:
    """Message 0 comes again after three seconds, everything else is acked."""
    if message.data == b"0" and message.delivery_attempt == 1:
        message.nack(delay=3)
    else:
        message.ack()


@pytest.mark.slow
def test_a_retry_topic_that_is_deleted_ends_the_stream_with_what_to_do(
    room: Room, cluster: AdminClient, log: Deliveries
) -> None:
    topic, sub = room.pair(retry=QUICK)
    with sub.pull(first_fails) as stream:
        topic.publish(b"0", ordering_key="a").result(PATIENCE)
        until(lambda: stream.stats.moved, "the relocation")
        remove(cluster, retry_topic(topic, sub))
        end = time.monotonic() + PATIENCE
        while not stream.done() and time.monotonic() < end:
            topic.publish(b"1", ordering_key="b").result(PATIENCE)
            time.sleep(0.2)
        with pytest.raises(
            FailedPrecondition, match=r"was deleted by another client.*remake_retry_topic=True"
        ):
            stream.result(PATIENCE)
    room.ps.update_subscription(sub.name, remake_retry_topic=True)
    with sub.pull(log.ack):
        topic.publish(b"2", ordering_key="a").result(PATIENCE)
        until(lambda: b"2" in log.bodies, "the next message")


@pytest.mark.slow
def test_what_retention_took_from_a_retry_topic_is_reported_and_its_key_goes_on(
    room: Room, cluster: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    """200 messages of a key wait behind the first; of most only the place is known when they are deleted."""
    topic, sub = room.pair(retry=QUICK)
    acked: set[bytes] = set()

    def handle(message: Message) -> None:
        if message.data == b"0" and message.delivery_attempt == 1:
            message.nack(delay=15)
        else:
            message.ack()
            acked.add(message.data)

    with sub.pull(handle) as stream:
        topic.publish(b"0", ordering_key="a").result(PATIENCE)
        until(lambda: stream.stats.moved, "the relocation")
        all_stored([topic.publish(b"%d" % at, ordering_key="a") for at in range(1, 200)])
        until(lambda: stream.stats.moved > 100, "what waits behind it")
    assert not acked
    with caplog.at_level(logging.WARNING, "kafka_pubsub"), sub.pull(handle) as stream:
        until(lambda: stream.stats.partitions, "the partitions")
        topic.publish(b"elsewhere", ordering_key="b").result(PATIENCE)
        until(lambda: b"elsewhere" in acked, "another key, which waits for the retry topic to be read")
        cut(cluster, topic, sub)
        topic.publish(b"last", ordering_key="a").result(PATIENCE)
        until(lambda: b"last" in acked, "the last of the key")
        gone = {b"%d" % at for at in range(200)} - acked
        assert gone, "nothing was taken: the test is none"
        until(lambda: said(caplog, "a retry record is gone") >= len(gone), "each is told")
    assert said(caplog, "a retry record is gone") == len(gone), "none is told twice"


def cut(cluster: AdminClient, topic: Topic, sub: Subscription) -> None:
    """All that the retry topic holds is deleted, as by a retention that somebody has set."""
    places = [KafkaPartition(retry_topic(topic, sub), at, -1) for at in range(4)]
    for deleted in cluster.delete_records(places).values():
        deleted.result(PATIENCE)


def test_a_retry_topic_that_was_cut_while_nobody_read_it_says_how_much_is_gone(
    room: Room, cluster: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    topic, sub = room.pair(retry=QUICK)
    with sub.pull(lambda message: message.nack(delay=600)) as stream:
        topic.publish(b"0", ordering_key="a").result(PATIENCE)
        until(lambda: stream.stats.moved, "the relocation")
    cut(cluster, topic, sub)
    acked: list[bytes] = []

    def handle(message: Message) -> None:
        message.ack()
        acked.append(message.data)

    with caplog.at_level(logging.ERROR, "kafka_pubsub"), sub.pull(handle):
        topic.publish(b"1", ordering_key="a").result(PATIENCE)
        until(lambda: acked == [b"1"], "its successor")
    assert said(caplog, "has lost offsets") == 1


def test_a_retry_topic_with_another_number_of_partitions_serves_nothing_until_it_is_remade(
    room: Room, cluster: AdminClient, log: Deliveries
) -> None:
    topic, sub = room.pair(retry=QUICK)
    retry = retry_topic(topic, sub)
    cluster.create_partitions([NewPartitions(retry, 6)])[retry].result(PATIENCE)
    topic.publish(b"1", ordering_key="a").result(PATIENCE)
    with pytest.raises(FailedPrecondition, match=r"6 partitions and must have 4.*remake_retry_topic=True"):
        sub.pull(log.ack)
    room.ps.update_subscription(sub.name, remake_retry_topic=True)
    with sub.pull(log.ack):
        log.wait_for(1)
    assert log.bodies == [b"1"]


def test_a_dead_letter_topic_that_is_gone_is_reported_before_anything_is_delivered(
    room: Room, cluster: AdminClient, log: Deliveries
) -> None:
    dead_letter_topics = room.topic(partitions=1)
    topic, sub = room.pair(dead_letter=policy(dead_letter_topics.name))
    remove(cluster, dead_letter_topics.name)
    with pytest.raises(
        FailedPrecondition, match=rf"dead_letter\.topic '{dead_letter_topics.name}' is gone.*names another"
    ):
        sub.pull(log.ack)
    other = room.topic(partitions=1)
    room.ps.update_subscription(sub.name, dead_letter=policy(other.name))
    with sub.pull(log.ack):
        topic.publish(b"1").result(PATIENCE)
        log.wait_for(1)


@pytest.mark.timeout(200)
def test_a_dead_letter_topic_that_goes_away_loses_nothing(
    room: Room, cluster: AdminClient, log: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    dead_letter_topics = room.topic(partitions=1)
    topic, sub = room.pair(retry=QUICK, dead_letter=policy(dead_letter_topics.name))

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.ordering_key == "poison" or (
                message.data == b"again" and message.delivery_attempt == 1
            ):
                message.nack()
            else:
                message.ack()

    with caplog.at_level(logging.WARNING, "kafka_pubsub"), sub.pull(handle) as stream:
        topic.publish(b"first", ordering_key="b").result(PATIENCE)
        log.wait_for(1)
        remove(cluster, dead_letter_topics.name)
        topic.publish(b"poison", ordering_key="poison").result(PATIENCE)
        until(lambda: log.bodies.count(b"poison") == 5, "the last attempt")
        topic.publish(b"again", ordering_key="c").result(PATIENCE)
        until(lambda: log.bodies.count(b"again") == 2, "another key's redelivery", 2 * PATIENCE)
        assert stream.stats.dead_lettered == 0
        # Somebody makes it again, as Kafka's own tools do: the message is there, and goes.
        cluster.create_topics([NewTopic(dead_letter_topics.name, 1, 1)])[dead_letter_topics.name].result(
            PATIENCE
        )
        until(lambda: stream.stats.dead_lettered == 1, "the dead letter", 2 * PATIENCE)
    assert sub.state().lag == 0
