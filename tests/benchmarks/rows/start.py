"""How long the client under test takes to start, each step twice. Its imports count, so each function does its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.benchmarks.row import Measured
from tests.benchmarks.starting import KEY, PARTITIONS, PATIENCE_S, Laps, made_apart, time_commands, waited

if TYPE_CHECKING:
    from kafka_pubsub import Message, PubSub

__all__ = [
    "close_publisher",
    "close_stream",
    "create_subscription",
    "create_topic",
    "list_topics",
    "make",
    "prepare",
    "publish",
    "pull",
    "receive",
    "show_help",
]


def prepare(bootstrap: str, group: str, rounds: int, subscriptions: list[str], ours: bool) -> Measured:
    """Lets the broker do everything some times before the measuring, as its JVM compiles repeated work."""
    from tests.benchmarks.rows import start_bare

    for number in range(rounds):
        for step in (publish, create_topic, create_subscription, receive, close_stream, close_publisher):
            if ours:
                step(bootstrap, f"{group}-{number}-{step.__name__}")
            getattr(start_bare, step.__name__)(bootstrap, f"{group}-{number}-{step.__name__}-bare")
    return {"rounds": rounds}


def make(bootstrap: str, name: str, partitions: int) -> Measured:
    """A topic, a subscription of the same name, and a waiting message."""
    from kafka_pubsub import PubSub

    with PubSub(bootstrap) as pubsub:
        topic = pubsub.create_topic(name, partitions=partitions)
        pubsub.create_subscription(name, topic=name)
        topic.publish(b"waits", ordering_key=KEY).result(PATIENCE_S)
    return {"made": 1}


def publish(bootstrap: str, group: str) -> Measured:
    """From nothing to the id of the first message."""
    name, laps = made_apart("start", bootstrap, group), Laps()
    with laps.lap():
        from kafka_pubsub import PubSub

        pubsub = PubSub(bootstrap)
        topic = pubsub.topic(name)
        topic.publish(b"first", ordering_key=KEY).result(PATIENCE_S)
    with laps.lap():
        topic.publish(b"second", ordering_key=KEY).result(PATIENCE_S)
    pubsub.close()
    return laps.report()


def create_topic(bootstrap: str, group: str) -> Measured:
    """From nothing to a topic."""
    laps = Laps()
    with laps.lap():
        from kafka_pubsub import PubSub

        pubsub = PubSub(bootstrap)
        pubsub.create_topic(f"{group}-first", partitions=PARTITIONS)
    with laps.lap():
        pubsub.create_topic(f"{group}-second", partitions=PARTITIONS)
    pubsub.close()
    return laps.report()


def create_subscription(bootstrap: str, group: str) -> Measured:
    """From nothing to a subscription, which has a retry topic."""
    name, laps = made_apart("start", bootstrap, group), Laps()
    with laps.lap():
        from kafka_pubsub import PubSub

        pubsub = PubSub(bootstrap)
        pubsub.create_subscription(f"{group}-first", topic=name)
    with laps.lap():
        pubsub.create_subscription(f"{group}-second", topic=name)
    pubsub.close()
    return laps.report()


def pull(bootstrap: str, group: str, partitions: int) -> Measured:
    """From nothing to the first callback; then the same for a stream that follows in the same process."""
    name, laps = made_apart("start", bootstrap, group, partitions), Laps()
    with laps.lap():
        from kafka_pubsub import PubSub

        pubsub = PubSub(bootstrap)
        close = _pull(pubsub, name)
    close()
    pubsub.topic(name).publish(b"second", ordering_key=KEY).result(PATIENCE_S)
    with laps.lap():
        close = _pull(pubsub, name)
    close()
    pubsub.close()
    return laps.report()


def receive(bootstrap: str, group: str) -> Measured:
    """From nothing to the first message; the second comes by the same membership."""
    name, laps = made_apart("start", bootstrap, group), Laps()
    with laps.lap():
        from kafka_pubsub import PubSub

        pubsub = PubSub(bootstrap)
        subscription = pubsub.subscription(name)
        [message] = subscription.receive(timeout=PATIENCE_S)
    message.ack()
    pubsub.topic(name).publish(b"second", ordering_key=KEY).result(PATIENCE_S)
    with laps.lap():
        [message] = subscription.receive(timeout=PATIENCE_S)
    message.ack()
    pubsub.close()
    return laps.report()


def close_stream(bootstrap: str, group: str) -> Measured:
    """Closes a stream whose only message was acknowledged, and a second stream."""
    from kafka_pubsub import PubSub

    name, laps = made_apart("start", bootstrap, group), Laps()
    with PubSub(bootstrap) as pubsub:
        close = _pull(pubsub, name)
        with laps.lap():
            close()
        pubsub.topic(name).publish(b"second", ordering_key=KEY).result(PATIENCE_S)
        close = _pull(pubsub, name)
        with laps.lap():
            close()
    return laps.report()


def close_publisher(bootstrap: str, group: str) -> Measured:
    """Closes a `PubSub` right after a publish, and a second `PubSub`."""
    from kafka_pubsub import PubSub

    name, laps = made_apart("start", bootstrap, group), Laps()
    for body in (b"first", b"second"):
        pubsub = PubSub(bootstrap)
        pubsub.topic(name).publish(body, ordering_key=KEY)
        with laps.lap():
            pubsub.close()
    return laps.report()


def _pull(pubsub: PubSub, subscription: str) -> Callable[[], object]:
    """Pulls until the first callback has begun; returns a function that closes the stream."""
    came = threading.Event()

    def handle(message: Message) -> None:
        came.set()
        message.ack()

    stream = pubsub.subscription(subscription).pull(handle)
    waited(came)
    return stream.close


def show_help() -> Measured:
    """The command line without a broker."""
    return time_commands(["-m", "kafka_pubsub", "--help"])


def list_topics(bootstrap: str) -> Measured:
    """The command line with a single request."""
    return time_commands(["-m", "kafka_pubsub", "--bootstrap", bootstrap, "topic", "list"])
