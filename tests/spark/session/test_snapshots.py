"""An audit's view of a subscription that goes on: whatever its commits say can be read, or isn't judged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from kafka_pubsub import DeadlineExceeded, Message, PubSub, RetryPolicy
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named, split
from kafka_pubsub.subscribe.formats.record import RetryInfo, retry_headers
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints
from tests.checkpoints import made
from tests.spark.session.support import Runner, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.base.cluster import Cluster


@pytest.fixture
def cluster(spark: SparkSession, kafka: RunningKafka) -> Iterator[Cluster]:
    from spark.base.cluster import Cluster
    from spark.base.connection import Connection

    with Cluster(spark, Connection(kafka.bootstrap)) as made:
        yield made


@pytest.fixture
def half_done(kafka: RunningKafka, cluster: Cluster, name: str) -> Producer:
    """A single record in a transaction that is open."""
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"1")
    assert producer.flush(30) == 0
    return producer


def test_ends_wait_for_what_was_written_before(cluster: Cluster, half_done: Producer, name: str) -> None:
    at = TopicPartition(name, 0)
    assert cluster.ends([name])[at] == 0
    commit = threading.Timer(0.5, half_done.commit_transaction)
    commit.start()
    assert cluster.decided_ends([name])[at] > 0
    commit.join()


def test_a_transaction_that_never_ends_is_told(
    cluster: Cluster, half_done: Producer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.base.cluster.UNDECIDED_S", 0.2)
    with pytest.raises(DeadlineExceeded, match=name):
        cluster.decided_ends([name])
    half_done.abort_transaction(30)


def retried(bootstrap: str, name: str) -> None:
    """A subscription that nacked three messages once; its retry topic is deleted up to their end."""
    with PubSub(bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        ps.create_subscription(
            name, topic=name, message_ordering=True, retry=RetryPolicy(min_backoff=0.01, max_backoff=0.1)
        )
        for number in range(3):
            ps.topic(name).publish(b"%d" % number, ordering_key=f"k{number}").result(30)
        acked, enough = [], threading.Event()

        def handle(message: Message) -> None:
            if message.delivery_attempt == 1:
                message.nack()
                return
            message.ack()
            acked.append(message)
            if len(acked) == 3:
                enough.set()

        with ps.subscription(name).pull(handle):
            assert enough.wait(60)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    retry = KafkaPartition(f"{name}.sub.{name}.retry", 0, 3)
    for told in admin.delete_records([retry]).values():
        told.result(30)


@pytest.mark.parametrize("stale", [1, 100], ids=["once", "always"])
def test_what_was_deleted_under_its_eyes_is_looked_at_again(
    spark: SparkSession, kafka: RunningKafka, name: str, monkeypatch: pytest.MonkeyPatch, stale: int
) -> None:
    from spark.base.cluster import Cluster

    retried(kafka.bootstrap, name)
    asked: list[str] = []
    commits = Cluster.commits

    def earlier(self: Cluster, group: str) -> Any:
        """The first answers are from before any message was acked."""
        asked.append(group)
        nothing = {TopicPartition(topic, 0): Committed(0, "") for topic in (name, f"{name}.sub.{name}.retry")}
        return nothing if len(asked) <= stale else commits(self, group)

    monkeypatch.setattr(Cluster, "commits", earlier)
    outcome = Runner(spark, kafka.bootstrap)("audit", topic=name, subscriptions=[name])
    (found,) = outcome.facts["subscriptions"]
    if stale == 1:
        assert len(asked) == 2
        assert (found["acked"], found["waiting"], found["parked"]) == (3, 0, 0)
    else:
        from spark.audit.snapshots import TRIES

        assert len(asked) == TRIES


def moving(bootstrap: str, name: str) -> Producer:
    """A key's two messages are on their way to the retry topic, and committed; the second one's transaction is open."""
    with PubSub(bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        ps.create_subscription(name, topic=name, message_ordering=True, retry=RetryPolicy())
        publish(ps, name, [("k", "0"), ("k", "1")])
    retry = f"{name}.sub.{name}.retry"
    plain = Producer({"bootstrap.servers": bootstrap})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for origin, writer in enumerate((plain, producer)):
        said = retry_headers(None, RetryInfo("id", 0, origin))
        writer.produce(retry, key=b"k", partition=0, headers=[*said])
        assert writer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    positions = [KafkaPartition(name, 0, 2), KafkaPartition(retry, 0, 0)]
    told = consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()
    assert [each.error for each in told or ()] == [None, None]
    return producer


def test_what_the_commits_tell_of_before_its_transaction_can_be_read_is_waited_for(
    spark: SparkSession, kafka: RunningKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.base.cluster import Cluster

    commit = threading.Timer(0.5, moving(kafka.bootstrap, name).commit_transaction)
    commits = Cluster.commits

    def told(self: Cluster, group: str) -> Any:
        found = commits(self, group)
        commit.start()
        return found

    monkeypatch.setattr(Cluster, "commits", told)
    outcome = Runner(spark, kafka.bootstrap)("audit", topic=name, subscriptions=[name])
    commit.join()
    (found,) = outcome.facts["subscriptions"]
    assert outcome.facts["findings"] == []
    assert (found["acked"], found["waiting"], found["parked"]) == (0, 0, 2)


def test_the_checkpoints_that_commits_need_are_read_alone(spark: SparkSession) -> None:
    from spark.audit.snapshots import _checkpoints, _Said

    topic, asked = "orders.sub.billing.retry", []

    def said(number: int, at: int, topic: str = topic) -> tuple[TopicPartition, Committed]:
        text = ack_map.encode(AckMap(7, (), checkpoint=Named(at, 5), more=True), 2)
        return TopicPartition(topic, number), Committed(2, text)

    ends = {TopicPartition(topic, number): 9 for number in range(3)}
    ends[TopicPartition("dead", 0)] = 4
    told = made((3, 4), (6, 8), main=[(1, 2)])
    (small,) = map(checkpoints.encode, split(told))
    large = [*map(checkpoints.encode, split(told, 1))]
    there = [
        (0, 5, small),
        (0, 6, b"another"),
        (1, 5, None),
        (2, 3, large[0]),
        (2, 6, large[1]),
        (2, 8, large[2]),
    ]

    def read(topic: str, ends: Any, starting: dict[int, int] | None = None) -> DataFrame:
        asked.append((topic, {at.partition: end for at, end in ends.items()}, starting))
        low = starting or {}
        rows = [
            (None, number, offset, value)
            for number, offset, value in there
            if low[number] <= offset < ends[TopicPartition(topic, number)]
        ]
        return spark.createDataFrame(rows, "key binary, partition int, offset bigint, value binary")

    def found(*commits: tuple[TopicPartition, Committed]) -> Any:
        return _checkpoints("orders", [topic], _Said(ends, dict(commits), ends), read)

    assert found(said(0, 5)) == {0: told}
    assert asked == [(topic, {0: 6, 1: 9, 2: 9}, {0: 5, 1: 9, 2: 9})]
    assert found(said(0, 5, "orders")) == {0: told}, "the home topic's commit needs it, too"
    assert found(said(0, 5), said(1, 5)) is None, "that isn't one"
    assert found(said(1, 2)) is None, "it is gone"
    assert found(said(2, 3)) == {2: told}, "its records lie among others"
    asked.clear()
    assert found(said(0, 9)) == {}, "an earlier topic of that name had it"
    assert _checkpoints("orders", [], _Said(ends, {}, ends), read) == {}
    assert asked == []
