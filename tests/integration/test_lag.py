"""No phantom lag: with everything acked and no publisher at work, Kafka's own tools show 0 for every group of ours."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, RetryPolicy
from tests.support import until

#: Seconds after which a test gives up; far above the time that anything here takes.
PATIENCE = 60.0
#: Seconds within which the lag is gone after the last ack; a second is promised, the rest is for a busy machine.
SOON = 5.0
#: Seconds for the quickest close of so many: with an idle fetch each takes 0.5 at least.
QUICKLY, CLOSES = 0.4, 5
Protocol = Literal["classic", "consumer"]
QUICK = RetryPolicy(min_backoff=0.05, max_backoff=0.2)


class Cluster:
    """Looks at groups as `kafka-consumer-groups --describe` does: the log's end less the committed position."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        #: The common part of the names of all groups and topics of the test.
        self.name = name

    def groups(self) -> set[str]:
        """All groups of the test."""
        found = self.admin.list_consumer_groups().result(PATIENCE).valid
        return {group.group_id for group in found if self.name in group.group_id}

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The group's committed positions."""
        request = [ConsumerGroupTopicPartitions(group)]
        answer = self.admin.list_consumer_group_offsets(request)[group].result(PATIENCE)
        return {(each.topic, each.partition): each.offset for each in answer.topic_partitions}

    def lags(self) -> dict[tuple[str, str, int], int]:
        """The lag of each group in each partition with a committed position."""
        lags = {}
        for group in self.groups():
            committed = self.committed(group)
            wanted = {KafkaPartition(*place): OffsetSpec.latest() for place in committed}
            ends = self.admin.list_offsets(wanted) if wanted else {}
            for place, end in ends.items():
                at = (place.topic, place.partition)
                lags[group, *at] = end.result(PATIENCE).offset - committed[at]
        return lags

    def await_no_lag(self, within: float = SOON) -> None:
        """Until there is none left."""
        began = time.monotonic()
        while left := {place: lag for place, lag in self.lags().items() if lag}:
            assert time.monotonic() - began < within, left


@pytest.fixture
def name() -> str:
    return f"lag-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def protocol() -> Protocol:
    return "classic"


@pytest.fixture
def ps(kafka: Any, protocol: Protocol) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap, group_protocol=protocol) as ps:
        yield ps


@pytest.fixture
def cluster(kafka: Any, name: str) -> Cluster:
    return Cluster(kafka.bootstrap, name)


class Handler:
    """Nacks the messages that `fails` names, acks the others and counts them."""

    def __init__(self, fails: Callable[[Message], bool] = lambda message: False) -> None:
        self.fails = fails
        self.acked: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, message: Message) -> None:
        if self.fails(message):
            message.nack()
            return
        message.ack()
        with self._lock:
            self.acked.add(message.message_id)

    def await_acked(self, count: int) -> None:
        until(lambda: len(self.acked) >= count, f"{count} messages acked")


def publish(ps: PubSub, topic: str, count: int) -> None:
    futures = [ps.topic(topic).publish(b"%d" % at, ordering_key=f"k{at % 7}") for at in range(count)]
    for future in futures:
        future.result(PATIENCE)


def in_transactions(bootstrap: str, topic: str, *, commit: bool) -> None:
    """Another producer writes into both partitions of the topic, in a transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(topic, b"0", b"k", partition)
    producer.flush(PATIENCE)
    (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_acks_leave_no_lag(ps: PubSub, cluster: Cluster, name: str, exactly_once: bool) -> None:
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name, message_ordering=True, exactly_once=exactly_once)
    callback = Handler()
    with sub.pull(callback):
        publish(ps, name, 50)
        callback.await_acked(50)
        cluster.await_no_lag()
    cluster.await_no_lag()


def test_markers_of_a_publisher_leave_no_lag(ps: PubSub, cluster: Cluster, name: str) -> None:
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name)
    callback = Handler()
    with sub.pull(callback):
        in_transactions(cluster.bootstrap, name, commit=True)
        callback.await_acked(2)
        cluster.await_no_lag()
        # Nothing of this is ever delivered.
        in_transactions(cluster.bootstrap, name, commit=False)
        cluster.await_no_lag()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_redelivery_leaves_no_lag(ps: PubSub, cluster: Cluster, name: str) -> None:
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    callback = Handler(lambda message: int(message.data) % 5 == 0 and message.delivery_attempt < 3)
    with sub.pull(callback):
        publish(ps, name, 50)
        callback.await_acked(50)
        cluster.await_no_lag()
    cluster.await_no_lag()


def test_a_stream_that_is_closed_at_the_last_ack_leaves_no_lag(
    ps: PubSub, cluster: Cluster, name: str
) -> None:
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    callback = Handler(lambda message: message.delivery_attempt < 2)
    with sub.pull(callback):
        publish(ps, name, 14)
        callback.await_acked(14)
    cluster.await_no_lag(within=0)


@pytest.mark.parametrize("kept", [False, True], ids=["all-acked", "one-kept"])
def test_a_stream_that_closes_does_not_wait_for_an_idle_fetch(ps: PubSub, name: str, kept: bool) -> None:
    ps.create_topic(name, partitions=8)
    long = RetryPolicy(min_backoff=600, max_backoff=600)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=long)
    seconds = []
    for _ in range(CLOSES):
        callback = Handler(lambda message: kept and message.data == b"3")
        with sub.pull(callback) as stream:
            publish(ps, name, 50)
            callback.await_acked(50 - 7 * kept)  # seven messages have the key of the kept one
            began = time.monotonic()
            stream.close()
            seconds.append(time.monotonic() - began)
    assert min(seconds) < QUICKLY, seconds


def test_synchronous_pull_leaves_no_lag(ps: PubSub, cluster: Cluster, name: str) -> None:
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    publish(ps, name, 7)
    acked: set[str] = set()
    while len(acked) < 7:
        for message in sub.receive(10, timeout=PATIENCE):
            if message.delivery_attempt == 1:
                message.nack()
            else:
                message.ack()
                acked.add(message.message_id)
    cluster.await_no_lag()


def test_dead_letters_replays_and_releases_leave_no_lag_and_no_group(
    ps: PubSub, cluster: Cluster, name: str
) -> None:
    ps.create_topic(name, partitions=2)
    ps.create_topic(f"{name}-dead", partitions=1)
    policy = DeadLetterPolicy(topic=f"{name}-dead", max_attempts=5)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK, dead_letter=policy)
    healed = threading.Event()
    callback = Handler(lambda message: message.data == b"0" and not healed.is_set())
    with sub.pull(callback):
        publish(ps, name, 14)
        until(lambda: list(sub.dead_letters()), "a dead letter")
        callback.await_acked(13)
        cluster.await_no_lag()
        healed.set()
        sub.replay_dead_letters()
        callback.await_acked(14)
        cluster.await_no_lag()
        assert cluster.groups() == {name}, "the group of a replay goes with the replay"
    cluster.await_no_lag()
    ps.delete_subscription(name)
    assert cluster.groups() == set()


def test_a_released_message_leaves_no_lag(ps: PubSub, cluster: Cluster, name: str) -> None:
    ps.create_topic(name, partitions=2)
    ps.create_topic(f"{name}-dead", partitions=1)
    policy = DeadLetterPolicy(topic=f"{name}-dead", max_attempts=5, on_exhausted="park")
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK, dead_letter=policy)
    healed = threading.Event()
    callback = Handler(lambda message: message.data == b"0" and not healed.is_set())
    with sub.pull(callback):
        publish(ps, name, 14)
        until(lambda: "parked" in map(attrgetter("state"), sub.keys()), "a parked key")
        healed.set()
        sub.release()
        callback.await_acked(14)
        cluster.await_no_lag()
        assert cluster.groups() == {name}
    ps.delete_subscription(name)
    assert cluster.groups() == set()


def test_a_group_that_a_killed_replay_has_left_goes_with_its_subscription(
    ps: PubSub, cluster: Cluster, name: str
) -> None:
    ps.create_topic(name, partitions=1)
    ps.create_subscription(name, name)
    left = f"_kafka_pubsub.deadletter.{name}"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": left})
    consumer.commit(offsets=[KafkaPartition(name, 0, 0)], asynchronous=False)
    consumer.close()
    assert left in cluster.groups()
    ps.delete_subscription(name)
    assert cluster.groups() == set()
