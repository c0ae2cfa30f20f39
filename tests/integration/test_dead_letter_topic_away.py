"""A dead-letter topic with too few replicas: its records are neither taken nor refused, for as long as it is away."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

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
from tests.support import until

#: Seconds after which a test gives up: burials are tried again once a minute at the latest.
PATIENCE = 120.0
ATTEMPTS = 5
BACKOFF = 0.3
#: Seconds; a second above the backoff is promised, the rest is for a busy machine.
BOUND = BACKOFF + 1.0 + 3.0
#: Seconds for which the topic is away: two tries of a transaction, whose limit is 8, and what follows an abort.
AWAY = 25.0


class Handler:
    """Fails one message always, and every other one once."""

    def __init__(self) -> None:
        self.poisoned: list[int] = []
        self.failed: dict[str, float] = {}
        self.again: dict[str, float] = {}
        self.lock = threading.Lock()

    def __call__(self, message: Message) -> None:
        key = message.ordering_key or ""
        with self.lock:
            if key == "poison":
                self.poisoned.append(message.delivery_attempt)
                message.nack()
            elif key in self.failed:
                self.again.setdefault(key, time.monotonic())
                message.ack()
            else:
                self.failed[key] = time.monotonic()
                message.nack()

    def latest(self) -> float:
        """The longest time between a failure and its redelivery."""
        return max(self.again[key] - at for key, at in self.failed.items())


@pytest.fixture
def ps(kafka: Any) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as ps:
        yield ps


def set_replicas(cluster: AdminClient, topic: str, needed: int) -> None:
    """How many replicas must have a record of the topic; it has one."""
    entry = ConfigEntry("min.insync.replicas", str(needed), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in cluster.incremental_alter_configs([resource]).values():
        done.result(PATIENCE)


def letters(bootstrap: str, topic: str) -> list[dict[str, bytes | None]]:
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
                found.append(dict(record.headers() or []))
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(300)
def test_others_are_redelivered_in_time_and_the_letter_is_written_once_when_it_is_back(
    kafka: Any, ps: PubSub
) -> None:
    topic, graves = f"t-{uuid.uuid4().hex[:12]}", f"g-{uuid.uuid4().hex[:12]}"
    cluster = AdminClient({"bootstrap.servers": kafka.bootstrap})
    orders = ps.create_topic(topic, partitions=2, message_ordering=True)
    ps.create_topic(graves, partitions=1)
    subscription = ps.create_subscription(
        f"s-{topic}",
        topic=topic,
        message_ordering=True,
        retry=RetryPolicy(min_backoff=0.05, max_backoff=BACKOFF),
        dead_letter=DeadLetterPolicy(topic=graves, max_attempts=ATTEMPTS),
    )
    set_replicas(cluster, graves, 2)
    handle, number = Handler(), 0
    with subscription.pull(handle):
        orders.publish(b"bad", ordering_key="poison").result(PATIENCE)
        until(lambda: len(handle.poisoned) == ATTEMPTS, "all attempts", PATIENCE)
        end = time.monotonic() + AWAY
        while time.monotonic() < end:
            orders.publish(b"x", ordering_key=f"k{number}").result(PATIENCE)
            number += 1
            time.sleep(0.1)
        until(lambda: len(handle.again) == number, "all redeliveries", PATIENCE)
        assert handle.latest() < BOUND
    with subscription.pull(handle):
        orders.publish(b"x", ordering_key="next").result(PATIENCE)
        until(lambda: "next" in handle.again, "the next owner's redelivery", PATIENCE)
        assert handle.poisoned == [*range(1, ATTEMPTS + 1)], "its attempts were used up"
        assert letters(kafka.bootstrap, graves) == []
        set_replicas(cluster, graves, 1)
        until(lambda: letters(kafka.bootstrap, graves), "the dead letter", PATIENCE)
        orders.publish(b"good", ordering_key="last").result(PATIENCE)
        until(lambda: "last" in handle.again, "what comes afterwards", PATIENCE)
    (letter,) = letters(kafka.bootstrap, graves)
    assert letter["ps-dead-attempts"] == b"5"
    assert handle.poisoned == [*range(1, ATTEMPTS + 1)]
