"""Retry topics and dead-letter topics on a real Kafka: their settings on the broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kafka_pubsub import DeadLetterPolicy, FailedPrecondition, PubSub
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.model import Committed
from kafka_pubsub.topics.companion_topics import companion_settings
from tests.support import until

SECONDS = 30
MEGABYTE = 1024 * 1024


@pytest.fixture
def ps(kafka: LocalKafka) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as opened:
        yield opened


@pytest.fixture
def backend(kafka: LocalKafka) -> Iterator[KafkaBackend]:
    backend = KafkaBackend(kafka.bootstrap)
    yield backend
    backend.close()


@pytest.fixture
def cluster(kafka: LocalKafka) -> AdminClient:
    """Kafka's own admin client: somebody else."""
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def name() -> str:
    return f"y-{uuid.uuid4().hex[:12]}"


def make(cluster: AdminClient, name: str, partitions: int, settings: dict[str, str]) -> None:
    cluster.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(SECONDS)
    until(lambda: name in cluster.list_topics(timeout=SECONDS).topics)


def remove(cluster: AdminClient, name: str) -> None:
    """Deletes a topic. The controller answers before the broker has forgotten the topic and its settings."""
    cluster.delete_topics([name])[name].result(SECONDS)
    until(lambda: name not in cluster.list_topics(timeout=SECONDS).topics)


def configure(cluster: AdminClient, name: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    cluster.incremental_alter_configs([resource])[resource].result(SECONDS)


def test_it_takes_and_keeps_what_its_home_takes_however_old(
    kafka: LocalKafka, ps: PubSub, backend: KafkaBackend, name: str
) -> None:
    ps.create_topic(name, partitions=3)
    ps.create_subscription(name, name)
    retry = f"{name}.sub.{name}.retry"
    info = backend.admin.topic(retry)
    assert info.partitions == 3
    assert (info.config["retention.ms"], info.config["retention.bytes"]) == ("-1", "-1")
    assert backend.admin.group_offsets(name, retry) == {n: Committed(0, "") for n in range(3)}
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 90 * MEGABYTE})
    home_and_more = b"x" * (backend.admin.topic(name).max_message_bytes + MEGABYTE // 2)
    producer.produce(
        retry, home_and_more, partition=0, timestamp=1, on_delivery=lambda e, m: refused.append(e)
    )
    far = int(time.time() * 1000) + 30 * 86_400_000
    producer.produce(retry, b"x", partition=0, timestamp=far, on_delivery=lambda e, m: refused.append(e))
    assert producer.flush(SECONDS) == 0
    assert refused == [None, None]


def test_it_goes_with_its_subscription_and_not_with_its_home(
    ps: PubSub, cluster: AdminClient, name: str
) -> None:
    retry = f"{name}.sub.{name}.retry"
    for delete_home_first in (False, True):
        ps.create_topic(name, partitions=2)
        ps.create_subscription(name, name)
        if delete_home_first:
            ps.delete_topic(name)
            assert retry in cluster.list_topics(timeout=SECONDS).topics
            ps.delete_subscription(name)
        else:
            ps.delete_subscription(name)
            ps.delete_topic(name)
        assert retry not in cluster.list_topics(timeout=SECONDS).topics


def test_an_operators_is_adopted_and_kept(
    ps: PubSub, backend: KafkaBackend, cluster: AdminClient, name: str
) -> None:
    ps.create_topic(name, partitions=2)
    retry = f"{name}.sub.{name}.retry"
    settings = dict(companion_settings(backend.admin.topic(name)))
    make(cluster, retry, 2, {**settings, "retention.ms": "1000"})
    with pytest.raises(FailedPrecondition, match=r"retention\.ms is 1000, not -1"):
        ps.create_subscription(name, name)
    configure(cluster, retry, "retention.ms", "-1")
    ps.create_subscription(name, name)
    ps.delete_subscription(name)
    assert retry in cluster.list_topics(timeout=SECONDS).topics


def test_a_lost_one_stops_receiving_until_somebody_says_so(
    ps: PubSub, cluster: AdminClient, name: str
) -> None:
    topic = ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name)
    retry = f"{name}.sub.{name}.retry"
    remove(cluster, retry)
    with pytest.raises(FailedPrecondition, match="was deleted by another client"):
        sub.pull(print)
    make(cluster, retry, 2, {})
    with pytest.raises(FailedPrecondition, match="deleted and made again"):
        sub.pull(print)
    remove(cluster, retry)
    ps.update_subscription(name, remake_retry_topic=True)
    topic.publish(b"x").result(SECONDS)
    (message,) = sub.receive(1, timeout=SECONDS)
    message.ack()


def test_its_limit_follows_its_homes(
    ps: PubSub, backend: KafkaBackend, cluster: AdminClient, name: str
) -> None:
    ps.create_topic(name, partitions=1)
    sub = ps.create_subscription(name, name)
    configure(cluster, name, "max.message.bytes", "90000000")
    sub.pull(lambda message: message.ack()).close()
    assert backend.admin.topic(f"{name}.sub.{name}.retry").max_message_bytes > 90_000_000


def test_dead_letter_topics_of_ours_are_set_and_adopted_ones_are_judged(
    ps: PubSub,
    backend: KafkaBackend,
    cluster: AdminClient,
    name: str,
) -> None:
    ps.create_topic(name, partitions=1)
    ps.create_topic(f"{name}-dead", partitions=1)
    ps.create_subscription(name, name, dead_letter=DeadLetterPolicy(topic=f"{name}-dead"))
    info, home = backend.admin.topic(f"{name}-dead"), backend.admin.topic(name)
    assert info.max_message_bytes > home.max_message_bytes
    assert info.config["retention.ms"] == "-1"
    make(cluster, f"{name}-theirs", 1, {"cleanup.policy": "compact", "retention.ms": "9000000"})
    ps.adopt_topic(f"{name}-theirs")
    theirs = DeadLetterPolicy(topic=f"{name}-theirs")
    with pytest.raises(FailedPrecondition, match=r"cleanup\.policy=delete, max\.message\.bytes=\d+ with"):
        ps.update_subscription(name, dead_letter=theirs)
    configure(cluster, f"{name}-theirs", "cleanup.policy", "delete")
    configure(cluster, f"{name}-theirs", "max.message.bytes", "90000000")
    ps.update_subscription(name, dead_letter=theirs)
    assert backend.admin.topic(f"{name}-theirs").config["retention.ms"] == "9000000"
