"""How long confluent-kafka takes for the same steps, each twice. Its imports count, so each function does its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.benchmarks.row import Measured
from tests.benchmarks.starting import KEY, PARTITIONS, PATIENCE_S, Laps, made_apart, time_commands

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

__all__ = [
    "close_publisher",
    "close_stream",
    "create_subscription",
    "create_topic",
    "list_topics",
    "make",
    "publish",
    "pull",
    "receive",
    "show_help",
]

_HELP = """
import click
@click.command()
@click.option("--name", help="A name.")
def hello(name):
    "Greets you."
hello(["--help"])
"""
_LIST = """
import sys
from confluent_kafka.admin import AdminClient
print(*AdminClient({"bootstrap.servers": sys.argv[1]}).list_topics(timeout=30).topics)
"""


def make(bootstrap: str, name: str, partitions: int) -> Measured:
    """A topic with a message."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
    _produce(_producer(bootstrap), name)
    return {"made": 1}


def publish(bootstrap: str, group: str) -> Measured:
    """From nothing to the first message's report."""
    name, laps = made_apart("start_bare", bootstrap, group), Laps()
    with laps.lap():
        producer = _producer(bootstrap)
        _produce(producer, name)
    with laps.lap():
        _produce(producer, name)
    return laps.report()


def create_topic(bootstrap: str, group: str) -> Measured:
    """From nothing to a topic."""
    laps = Laps()
    with laps.lap():
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(f"{group}-first", PARTITIONS, 1)])[f"{group}-first"].result(PATIENCE_S)
    with laps.lap():
        admin.create_topics([NewTopic(f"{group}-second", PARTITIONS, 1)])[f"{group}-second"].result(
            PATIENCE_S
        )
    return laps.report()


def create_subscription(bootstrap: str, group: str) -> Measured:
    """A second topic, and the group's positions at the ends of the first: Kafka's part of a subscription."""
    name, laps = made_apart("start_bare", bootstrap, group), Laps()
    with laps.lap():
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
        from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

        admin = AdminClient({"bootstrap.servers": bootstrap})

        def subscribe(subscription: str) -> None:
            beside = f"{subscription}-retry"
            admin.create_topics([NewTopic(beside, PARTITIONS, 1)])[beside].result(PATIENCE_S)
            ends = admin.list_offsets(
                {TopicPartition(name, number): OffsetSpec.latest() for number in range(PARTITIONS)}
            )
            positions = [
                TopicPartition(name, place.partition, end.result(PATIENCE_S).offset)
                for place, end in ends.items()
            ]
            [stored] = admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(subscription, positions)]
            ).values()
            stored.result(PATIENCE_S)

        subscribe(f"{group}-first")
    with laps.lap():
        subscribe(f"{group}-second")
    return laps.report()


def pull(bootstrap: str, group: str, partitions: int) -> Measured:
    """From nothing to the first message; then the same for a consumer that follows in the same process."""
    name, laps = made_apart("start_bare", bootstrap, group, partitions), Laps()
    with laps.lap():
        consumer = _consumer(bootstrap, name)
        _read(consumer)
    consumer.commit(asynchronous=False)
    consumer.close()
    _produce(_producer(bootstrap), name)
    with laps.lap():
        consumer = _consumer(bootstrap, name)
        _read(consumer)
    consumer.close()
    return laps.report()


def receive(bootstrap: str, group: str) -> Measured:
    """From nothing to the first message; the second comes by the same membership."""
    name, laps = made_apart("start_bare", bootstrap, group), Laps()
    with laps.lap():
        consumer = _consumer(bootstrap, name)
        _read(consumer)
    _produce(_producer(bootstrap), name)
    with laps.lap():
        _read(consumer)
    consumer.close()
    return laps.report()


def close_stream(bootstrap: str, group: str) -> Measured:
    """Commits the read offsets and closes the consumer; and a second consumer."""
    name, laps = made_apart("start_bare", bootstrap, group), Laps()
    for _ in range(2):
        consumer = _consumer(bootstrap, name)
        _read(consumer)
        with laps.lap():
            consumer.commit(asynchronous=False)
            consumer.close()
        _produce(_producer(bootstrap), name)
    return laps.report()


def close_publisher(bootstrap: str, group: str) -> Measured:
    """Flushes a producer right after a message and lets it go; and a second producer."""
    name, laps = made_apart("start_bare", bootstrap, group), Laps()
    for _ in range(2):
        producer = _producer(bootstrap)
        producer.produce(name, b"body", KEY)
        with laps.lap():
            producer.flush(PATIENCE_S)
            del producer
    return laps.report()


def show_help() -> Measured:
    """A command with an option."""
    return time_commands(["-c", _HELP])


def list_topics(bootstrap: str) -> Measured:
    """The names of all topics."""
    return time_commands(["-c", _LIST, bootstrap])


def _producer(bootstrap: str) -> Producer:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"})


def _produce(producer: Producer, topic: str) -> None:
    reports: list[object] = []
    producer.produce(topic, b"body", KEY, on_delivery=lambda error, _: reports.append(error))
    if producer.flush(PATIENCE_S) or reports != [None]:
        raise RuntimeError(f"producing to {topic}: {reports}")


def _consumer(bootstrap: str, topic: str) -> Consumer:
    from confluent_kafka import Consumer

    settings = {
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, **settings})
    consumer.subscribe([topic])
    return consumer


def _read(consumer: Consumer) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            return
    raise RuntimeError(f"no message came within {PATIENCE_S:.0f} s")
