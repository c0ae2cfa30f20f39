"""A journey of delayed messages: they are published side by side, and observed on all topics on their way.

Rules
1. A `Watch` is a plain Kafka consumer of committed records. It begins at the end of each log, before any message is
   published.
2. The tests of the journey only read what it has noted; the journey waits until all messages are home.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from kafka_pubsub import DelayRouter, Message, PubSub
from kafka_pubsub.delays.layout import INGEST, tier_topic
from tests.acceptance.support import PATIENCE, Room, all_stored, until

__all__ = ["DELAYS", "Arrival", "Journey", "Routers", "Sent", "Watch", "travel"]

#: Seconds of delay of each message; two have the same one.
DELAYS = (0, 0.25, 1, 1.5, 2, 3, 5, 5, 6, 7)
#: The tiers that a delay of at most 7 seconds can pass.
_TIERS = tuple(tier_topic(number) for number in range(3))
#: Seconds after the last message in which a second copy would come.
_AFTERWARDS = 0.5


class Watch:
    """Reads whole topics from their ends on."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"watch-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self.records: list[KafkaMessage] = []
        known = self._consumer.list_topics(timeout=PATIENCE).topics
        places = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
        for place in places:
            _, place.offset = self._consumer.get_watermark_offsets(place, timeout=PATIENCE)
        self._consumer.assign(places)

    def look(self) -> list[KafkaMessage]:
        """Reads on, and returns everything that was read so far."""
        self.records += [each for each in self._consumer.consume(500, 0.05) if each.error() is None]
        return self.records

    def wait_for(self, wanted: Callable[[KafkaMessage], bool], count: int) -> list[KafkaMessage]:
        """Waits until so many of the wanted records were read."""
        until(
            lambda: sum(wanted(each) for each in self.look()) >= count,
            f"{count} records among {len(self.records)}",
        )
        return [each for each in self.records if wanted(each)]

    def close(self) -> None:
        self._consumer.close()


class Routers:
    """The delay router of a test file."""

    def __init__(self, ps: PubSub) -> None:
        self._ps = ps
        self._router = self._begin()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Ends the router for the length of the block; another one begins afterwards."""
        self.stop()
        until(lambda: self._ps.delays.routers() == 0, "no router")
        try:
            yield
        finally:
            self._router = self._begin()

    def stop(self) -> None:
        assert self._router.stop(PATIENCE)

    def _begin(self) -> DelayRouter:
        return DelayRouter(self._ps).start().wait_until_running(PATIENCE)


class Sent(NamedTuple):
    """A message as it was published, between two moments of the wall clock."""

    body: bytes
    delay: float
    key: str | None
    message_id: str
    began: float
    ended: float


class Arrival(NamedTuple):
    """A message as a subscriber got it, and when."""

    message: Message
    at: float


class Journey(NamedTuple):
    """What was published, and where it was seen."""

    home: str
    sent: Sequence[Sent]
    records: Sequence[KafkaMessage]
    arrivals: Sequence[Arrival]

    def of(self, sent: Sent, *topics: str) -> list[KafkaMessage]:
        """The records of a message in these topics, by the time that they carry."""
        found = [each for each in self.records if each.value() == sent.body and each.topic() in topics]
        return sorted(found, key=lambda each: each.timestamp()[1])

    def path(self, sent: Sent) -> list[int]:
        """The tiers that a message passed, in their order."""
        return [_TIERS.index(str(each.topic())) for each in self.of(sent, *_TIERS)]


def travel(ps: PubSub, bootstrap: str) -> Journey:
    """Publishes a message of each delay, and watches until all are home."""
    room = Room(ps)
    topic = room.topic(partitions=2)
    subscription = room.subscription(topic)
    arrivals: list[Arrival] = []

    def handle(message: Message) -> None:
        arrivals.append(Arrival(message, time.time()))
        message.ack()

    watch = Watch(bootstrap, (INGEST, *_TIERS, topic.name))
    with subscription.pull(handle):
        topic.publish(b"warm").result(PATIENCE)
        until(lambda: arrivals, "the subscriber")
        sent = []
        for number, delay in enumerate(DELAYS):
            body, key = f"{room.name} {number}".encode(), f"k{number}" if number % 3 else None
            began = time.time()
            (message_id,) = all_stored(
                [topic.publish(body, ordering_key=key, attributes={"n": str(number)}, delay=delay)]
            )
            sent.append(Sent(body, delay, key, message_id, began, time.time()))
        until(lambda: watch.look() is not None and len(arrivals) > len(sent), "all messages at home")
        watch.wait_for(lambda each: each.topic() == topic.name, len(sent) + 1)
        end = time.monotonic() + _AFTERWARDS
        while time.monotonic() < end:
            watch.look()
    watch.close()
    return Journey(topic.name, sent, watch.records, arrivals[1:])
