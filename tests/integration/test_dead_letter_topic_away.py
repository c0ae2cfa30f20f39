"""A dead-letter topic with too few replicas: its records are neither taken nor refused, for as long as it is away."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import cast

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kafka_pubsub import Message, PubSub
from kafka_pubsub.config import DeadLetterPolicy, RetryPolicy
from tests.local_cluster import LocalCluster
from tests.support import until

#: Seconds after which a test gives up: dead letters are tried again once a minute at the latest.
PATIENCE = 120.0
ATTEMPTS = 5
BACKOFF = 0.3
#: Messages, a tenth of a second each or more, that are published at most between a failure and its redelivery: on a
#: busy machine both take longer. Messages that wait for a transaction without an answer wait for 80.
BOUND = 40
#: Seconds for which the topic is away: two tries of a transaction, whose limit is 8, and the steps after an abort.
AWAY = 25.0


class Handler:
    """Fails a single message always, and some once."""

    def __init__(self) -> None:
        self.poisoned: list[int] = []
        # By key: how many messages were published by then.
        self.failed: dict[str, int] = {}
        self.again: dict[str, int] = {}
        self.published = 0
        self.lock = threading.Lock()

    def __call__(self, message: Message) -> None:
        key = message.ordering_key or ""
        with self.lock:
            if key == "poison":
                self.poisoned.append(message.delivery_attempt)
                message.nack()
            elif key in self.failed:
                self.again.setdefault(key, self.published)
                message.ack()
            elif message.data == b"once":
                self.failed[key] = self.published
                message.nack()
            else:
                message.ack()

    def latest(self) -> int:
        """How many messages at most were published between a failure and its redelivery."""
        return max(self.again[key] - at for key, at in self.failed.items())


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3) as cluster:
        yield cluster


@pytest.fixture
def ps(cluster: LocalCluster) -> Iterator[PubSub]:
    with PubSub(cluster.bootstrap) as ps:
        yield ps


def set_replicas(admin: AdminClient, topic: str, needed: int) -> None:
    """How many of the topic's three replicas must have a record."""
    entry = ConfigEntry("min.insync.replicas", str(needed), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE)


def dead_letters(bootstrap: str, topic: str) -> list[dict[str, bytes | None]]:
    """The headers of all dead letters that are there now."""
    found: list[dict[str, bytes | None]] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.subscribe([topic])
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            record = consumer.poll(0.5)
            if record is not None and record.error() is not None:
                break
            if record is not None:
                found.append(dict(cast("list[tuple[str, bytes | None]]", record.headers() or [])))
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(480)
def test_others_are_redelivered_in_time_and_the_dead_letter_is_written_once_when_it_is_back(
    cluster: LocalCluster, ps: PubSub
) -> None:
    topic, dead_letter_topics = f"t-{uuid.uuid4().hex[:12]}", f"g-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    orders = ps.create_topic(topic, partitions=2, message_ordering=True)
    ps.create_topic(dead_letter_topics, partitions=1)
    subscription = ps.create_subscription(
        f"s-{topic}",
        topic=topic,
        message_ordering=True,
        retry=RetryPolicy(min_backoff=0.05, max_backoff=BACKOFF),
        dead_letter=DeadLetterPolicy(topic=dead_letter_topics, max_attempts=ATTEMPTS),
    )
    set_replicas(admin, dead_letter_topics, 3)
    cluster.stop(3)
    handle, number = Handler(), 0
    with subscription.pull(handle):
        orders.publish(b"once", ordering_key="before").result(PATIENCE)
        until(lambda: "before" in handle.again, "the group to have settled", PATIENCE)
        handle.failed.clear()
        orders.publish(b"bad", ordering_key="poison").result(PATIENCE)
        until(lambda: len(handle.poisoned) == ATTEMPTS, "all attempts", PATIENCE)
        end = time.monotonic() + AWAY
        while time.monotonic() < end:
            data = b"good" if number % 4 else b"once"
            orders.publish(data, ordering_key=f"k{number}").result(PATIENCE)
            number += 1
            handle.published = number
            time.sleep(0.1)
        until(lambda: handle.failed.keys() <= handle.again.keys(), "all redeliveries", PATIENCE)
        assert handle.latest() < BOUND
    with subscription.pull(handle):
        orders.publish(b"once", ordering_key="next").result(PATIENCE)
        until(lambda: "next" in handle.again, "the next owner's redelivery", PATIENCE)
        assert handle.poisoned == [*range(1, ATTEMPTS + 1)], "its attempts were used up"
        assert dead_letters(cluster.bootstrap, dead_letter_topics) == []
        cluster.start(3)
        until(lambda: dead_letters(cluster.bootstrap, dead_letter_topics), "the dead letter", PATIENCE)
        orders.publish(b"once", ordering_key="last").result(PATIENCE)
        until(lambda: "last" in handle.again, "what comes afterwards", PATIENCE)
    (dead_letter,) = dead_letters(cluster.bootstrap, dead_letter_topics)
    assert dead_letter["ps-dead-attempts"] == b"5"
    assert handle.poisoned == [*range(1, ATTEMPTS + 1)]
