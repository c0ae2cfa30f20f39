"""Topics of the benchmark, made and filled by a plain client so that every row finds the same log."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.data import Payloads, key_name, keys, places
from tests.benchmarks.row import Measured

__all__ = [
    "CONSUMER",
    "PARTITIONS",
    "PRODUCER",
    "committed_total",
    "create_plainly",
    "create_with_us",
    "fill",
    "prepare",
    "published_per_key",
    "read_through",
    "remove",
]

PARTITIONS = 8
# Three million messages take some ten seconds; this is for the slowest machine that anyone would measure on.
READ_THROUGH_S = 300.0

# Settings that the client under test needs for correctness, and none that only one side would gain by.
PRODUCER: dict[str, str | int | float | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    # As in the Java client, so that all rows fill the same partitions.
    "partitioner": "murmur2_random",
    "compression.type": "none",
}
CONSUMER: dict[str, str | int | float | bool] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    # The default of 1000 ms makes a fast consumer wait for its own queue: a third of the throughput.
    "fetch.queue.backoff.ms": 5,
}


def prepare(
    bootstrap: str,
    topic: str,
    distinct: int,
    messages: int,
    subscriptions: list[str],
    ours: bool = True,
    backoff: float | None = None,
    exactly_once: bool = False,
) -> Measured:
    """Make a topic, its subscriptions, and fill it: in this order, as a subscription sees only later messages.

    Then read all of it once. A broker that was just started reads at half its speed until its JVM has compiled that
    path (tried: 269,000 and 500,000 msg/s), and the first row would pay for all others.
    """
    if ours:
        create_with_us(bootstrap, topic, subscriptions, backoff, exactly_once)
    else:
        create_plainly(bootstrap, topic)
    fill(bootstrap, topic, distinct, messages)
    read_through(bootstrap, topic, messages)
    return {"published": messages}


def create_with_us(
    bootstrap: str,
    topic: str,
    subscriptions: list[str],
    backoff: float | None = None,
    exactly_once: bool = False,
) -> None:
    """A topic and subscriptions of the client under test; `backoff`: seconds before each redelivery."""
    from kafka_pubsub import PubSub, RetryPolicy

    retry = None if backoff is None else RetryPolicy(min_backoff=backoff, max_backoff=backoff)
    with PubSub(bootstrap) as pubsub:
        pubsub.create_topic(topic, partitions=PARTITIONS, message_ordering=True)
        for name in subscriptions:
            pubsub.create_subscription(
                name, topic=topic, message_ordering=True, retry=retry, exactly_once=exactly_once
            )


def create_plainly(bootstrap: str, topic: str) -> None:
    """The same topic for a run without the client under test."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        answer.result(timeout=30)


def remove(bootstrap: str, prefix: str, ours: bool) -> Measured:
    """Take away the scenario's topics on a cluster that isn't ours to throw away."""
    if ours:
        from kafka_pubsub import PubSub

        with PubSub(bootstrap) as pubsub:
            for subscription in pubsub.list_subscriptions():
                if subscription.name.startswith(prefix):
                    pubsub.delete_subscription(subscription.name)
            for topic in pubsub.list_topics():
                if topic.name.startswith(prefix):
                    pubsub.delete_topic(topic.name)
    # Looked up afterwards: with its subscriptions a topic's retry topics are gone.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for answer in admin.delete_topics(topics).values() if topics else ():
        answer.result(timeout=60)
    return {"removed": len(topics)}


def fill(
    bootstrap: str, topic: str, distinct: int, messages: int, make: Callable[[int, int], bytes] | None = None
) -> None:
    """Publish the messages of `data`, or those that `make` makes, and wait until the broker has them all."""
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER, "queue.buffering.max.messages": 200_000})
    make = make or Payloads().make
    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for number, place in places(keys(messages, distinct)):
        value, key = make(number, place), key_name(number)
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(120)
    if failures or left:
        raise RuntimeError(f"filling {topic}: {len(failures)} failed ({failures[:1]}), {left} unanswered")


def read_through(bootstrap: str, topic: str, messages: int) -> None:
    """Read so many messages of a topic and forget them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-warmup", **CONSUMER})
    consumer.subscribe([topic])
    left = messages
    deadline = time.monotonic() + READ_THROUGH_S
    while left > 0:
        batch = consumer.consume(5000, 0.1)
        left -= sum(message.error() is None for message in batch)
        if time.monotonic() > deadline:
            raise RuntimeError(f"reading {topic}: {left} of {messages} messages were not there")
    consumer.close()


def published_per_key(distinct: int, messages: int) -> dict[int, int]:
    """How many messages of each key `fill` publishes."""
    counts: dict[int, int] = {}
    for number in keys(messages, distinct):
        counts[number] = counts.get(number, 0) + 1
    return counts


def committed_total(bootstrap: str, group: str, topic: str) -> int:
    """The sum of a group's committed offsets; partitions without an offset count as 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(max(0, answer.offset) for answer in consumer.committed(asked, timeout=30))
    except KafkaException as error:
        raise RuntimeError(f"asking for the offsets of {group}: {error}") from error
    finally:
        consumer.close()
