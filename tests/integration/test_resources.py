"""Topics and subscriptions on a real Kafka: the behaviour that only the broker decides."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kafka_pubsub import (
    AlreadyExists,
    BrokerUnavailable,
    FailedPrecondition,
    InvalidArgument,
    Message,
    NotFound,
    PubSub,
    PubSubError,
)
from kafka_pubsub.local import LocalKafka

SECONDS = 30


@pytest.fixture
def ps(kafka: LocalKafka) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as opened:
        yield opened


@pytest.fixture
def cluster(kafka: LocalKafka) -> AdminClient:
    """Kafka's own admin client: somebody else."""
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def name() -> str:
    return f"r-{uuid.uuid4().hex[:12]}"


def make(cluster: AdminClient, name: str, partitions: int = 1) -> None:
    cluster.create_topics([NewTopic(name, partitions, 1)])[name].result(SECONDS)
    # The controller has answered; on a busy machine the broker hears of it later.
    until = time.monotonic() + SECONDS
    while name not in cluster.list_topics(timeout=SECONDS).topics:
        assert time.monotonic() < until, f"{name} was made and isn't seen"


def remove(cluster: AdminClient, name: str) -> None:
    cluster.delete_topics([name])[name].result(SECONDS)


def collect(ps: PubSub, subscription: str, count: int) -> list[Message]:
    """Receives and acks so many messages."""
    got: list[Message] = []
    until = time.monotonic() + SECONDS
    sub = ps.subscription(subscription)
    while len(got) < count and time.monotonic() < until:
        messages = sub.receive(count - len(got), timeout=1)
        for message in messages:
            message.ack()
        got += messages
    return got


def test_a_topic_and_a_subscription_are_made_used_changed_and_deleted(
    ps: PubSub, cluster: AdminClient, name: str
) -> None:
    topic = ps.create_topic(name, partitions=3, message_ordering=True, retention=3600, labels={"a": "b"})
    assert (topic.options.partitions, topic.options.replication, topic.options.retention) == (3, 1, 3600)
    topic.publish(b"before", ordering_key="k").result(SECONDS)
    sub = ps.create_subscription(name, topic, message_ordering=True)
    for number in range(10):
        topic.publish(b"%d" % number, ordering_key="k")
    assert [message.data for message in collect(ps, name, 10)] == [b"%d" % number for number in range(10)]
    assert sub.state().topic == name
    ps.update_topic(name, retention=7200, labels={})
    assert ps.topic(name).options.retention == 7200
    assert ps.update_subscription(name, ack_deadline=60).options.ack_deadline == 60
    ps.delete_subscription(name)
    ps.delete_topic(name)
    assert name not in cluster.list_topics(timeout=SECONDS).topics
    assert name not in [each.name for each in ps.list_topics()]
    assert name not in [each.name for each in ps.list_subscriptions()]
    # Everything may be made again at once.
    ps.create_topic(name, partitions=3).publish(b"x").result(SECONDS)
    ps.create_subscription(name, name)
    ps.topic(name).publish(b"y").result(SECONDS)
    assert [message.data for message in collect(ps, name, 1)] == [b"y"]


def test_other_processes_see_the_same_catalog(kafka: LocalKafka, ps: PubSub, name: str) -> None:
    ps.create_topic(name, partitions=3)
    with PubSub(kafka.bootstrap) as other:
        assert other.topic(name).options.partitions == 3
        with pytest.raises(AlreadyExists, match="partitions is 3, not 5"):
            other.create_topic(name, partitions=5, exist_ok=True)
        other.create_subscription(name, name, ack_deadline=30)
    assert ps.subscription(name).options.ack_deadline == 30


def test_a_change_that_returned_is_seen_by_everybody(kafka: LocalKafka, ps: PubSub, name: str) -> None:
    """A transaction's commit is answered before its marker lets readers by: 68 of 600 looks were too early."""
    topic = ps.create_topic(name)
    with PubSub(kafka.bootstrap) as other:
        seen = other.topic(name)
        for number in range(100):
            ps.update_topic(name, labels={"round": str(number)})
            assert (seen.options.labels, topic.options.labels) == (
                {"round": str(number)},
                {"round": str(number)},
            )


def test_of_many_that_make_the_same_at_once_one_wins(kafka: LocalKafka, name: str) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def create() -> None:
        with PubSub(kafka.bootstrap) as ps:
            start.wait(SECONDS)
            for call in (lambda: ps.create_topic(name), lambda: ps.create_subscription(name, name)):
                try:
                    call()
                    outcomes.append("made")
                except AlreadyExists:
                    outcomes.append("exists")

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
    assert sorted(outcomes) == ["exists"] * 6 + ["made"] * 2


def test_adopting_notices_what_librdkafka_has_put_elsewhere_by_default(
    ps: PubSub, cluster: AdminClient, kafka: LocalKafka, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(cluster, name, partitions=4)
    make(cluster, f"{name}-fine", partitions=4)
    strangers = {
        name: Producer({"bootstrap.servers": kafka.bootstrap}),
        f"{name}-fine": Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"}),
    }
    for topic, stranger in strangers.items():
        for number in range(200):
            stranger.produce(topic, b"x", key=f"key-{number}")
        assert stranger.flush(SECONDS) == 0
    found = ps.adopt_topic(name).key_places()
    assert found is not None
    assert (found.keys, found.misplaced > 100, found.former_partitions) == (200, True, None)
    assert "partitioner=murmur2_random" in caplog.text
    caplog.clear()
    assert ps.adopt_topic(f"{name}-fine").key_places() == (4, 200, 0, (), None)
    assert "sampled keys" not in caplog.text


def test_a_kafka_topic_is_adopted_with_its_messages_and_survives_being_forgotten(
    kafka: LocalKafka, ps: PubSub, cluster: AdminClient, name: str
) -> None:
    make(cluster, name, 2)
    with pytest.raises(AlreadyExists, match=f"adopt_topic\\('{name}'\\)"):
        ps.create_topic(name, exist_ok=True)
    assert ps.adopt_topic(name).options.partitions == 2
    ps.create_subscription(name, name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, value=b"\xff\x00", key=b"\xff", headers=[("h", b"\x00"), ("h", None)])
    producer.flush(SECONDS)
    (message,) = collect(ps, name, 1)
    assert (message.data, message.key, message.headers) == (
        b"\xff\x00",
        b"\xff",
        [("h", b"\x00"), ("h", None)],
    )
    ps.delete_subscription(name)
    ps.delete_topic(name)
    assert name in cluster.list_topics(timeout=SECONDS).topics


def test_a_topic_deleted_and_made_again_by_somebody_else_is_noticed(
    ps: PubSub, cluster: AdminClient, name: str
) -> None:
    ps.create_topic(name, partitions=1)
    sub = ps.create_subscription(name, name)
    remove(cluster, name)
    with pytest.raises(NotFound, match="deleted from Kafka by another client"):
        sub.pull(print)
    make(cluster, name)
    with pytest.raises(FailedPrecondition, match="deleted and made again by another client"):
        sub.pull(print)
    with pytest.raises(FailedPrecondition, match="deleted and made again by another client"):
        ps.topic(name).publish(b"x").result(SECONDS)
    ps.adopt_topic(name)
    with pytest.raises(FailedPrecondition, match="detached"):
        sub.pull(print)


def test_a_topic_with_more_partitions_than_it_was_made_with_takes_no_keys(
    ps: PubSub, cluster: AdminClient, name: str
) -> None:
    topic = ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name)
    cluster.create_partitions([NewPartitions(name, 3)])[name].result(SECONDS)
    with pytest.raises(FailedPrecondition, match="made with 2 partitions and has 3 now"):
        topic.publish(b"x", ordering_key="k")
    with pytest.raises(FailedPrecondition, match="repartition_topic"):
        sub.pull(print)
    assert topic.publish(b"x").result(SECONDS)


def test_a_group_that_is_not_ours_is_left_alone(kafka: LocalKafka, ps: PubSub, name: str) -> None:
    ps.create_topic(name, partitions=1).publish(b"x").result(SECONDS)
    stranger = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    stranger.subscribe([name])
    assert stranger.poll(SECONDS) is not None
    with pytest.raises(FailedPrecondition, match="1 members"):
        ps.create_subscription(name, name)
    stranger.commit(asynchronous=False)
    stranger.close()
    with pytest.raises(FailedPrecondition, match="committed offsets"):
        ps.create_subscription(name, name)
    assert not [each for each in ps.list_subscriptions() if each.name == name]


def test_the_position_at_creation_is_behind_an_open_transaction(
    kafka: LocalKafka, ps: PubSub, name: str
) -> None:
    """Records of such a transaction aren't published yet, so the subscription receives them."""
    ps.create_topic(name, partitions=1).publish(b"before").result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(name, value=b"inside")
    producer.flush(SECONDS)
    ps.create_subscription(name, name)
    producer.commit_transaction(SECONDS)
    assert [message.data for message in collect(ps, name, 1)] == [b"inside"]


def test_a_subscription_deleted_elsewhere_ends_its_streams(kafka: LocalKafka, ps: PubSub, name: str) -> None:
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name)
    with sub.pull(lambda message: message.ack()) as stream:
        ps.topic(name).publish(b"x").result(SECONDS)
        with PubSub(kafka.bootstrap) as other:
            other.delete_subscription(name)
        with pytest.raises(NotFound, match="was deleted"):
            stream.result(SECONDS)
    with pytest.raises(NotFound, match="not found"):
        sub.pull(print)


def test_names_that_kafka_cannot_tell_apart_are_refused(ps: PubSub, name: str) -> None:
    ps.create_topic(f"{name}_a")
    with pytest.raises(InvalidArgument, match="can't be told from"):
        ps.create_topic(f"{name}.a")


def test_more_replicas_than_brokers_are_refused_and_nothing_is_left(ps: PubSub, name: str) -> None:
    with pytest.raises(PubSubError, match=r"(?i)replica") as caught:
        ps.create_topic(name, replication=3)
    assert not isinstance(caught.value.__cause__, KafkaException)
    assert ps.create_topic(name, replication=1).options.replication == 1


def test_without_the_right_to_create_an_adopted_topic_is_published_to(
    kafka: LocalKafka, ps: PubSub, cluster: AdminClient, name: str
) -> None:
    ps.list_topics()
    make(cluster, name)
    with PubSub(kafka.bootstrap, create=False) as modest:
        with pytest.raises(FailedPrecondition, match="create=False"):
            modest.create_topic(f"{name}-new")
        modest.adopt_topic(name)
        with pytest.raises(FailedPrecondition, match="create=False"):
            modest.create_subscription(name, name)
        assert modest.topic(name).publish(b"x").result(SECONDS)
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": name})
    assert reader.get_watermark_offsets(TopicPartition(name, 0), timeout=SECONDS) == (0, 1)
    reader.close()


def test_a_wrong_address_is_reported_by_the_first_call_that_needs_it_in_bounded_time() -> None:
    with PubSub("127.0.0.1:1") as ps:
        started = time.monotonic()
        with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
            ps.list_topics()
        assert time.monotonic() - started < 60
