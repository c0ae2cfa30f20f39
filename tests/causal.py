"""Fixtures of the tests of causal topics on a broker of their own, and the logs of their topics.

`LETTERS` of a file of tests names its topics.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub import PubSub
from kafka_pubsub.local.broker import LocalKafka

__all__ = ["PATIENCE", "bodies", "broker", "log", "make_topics", "names", "other", "ps"]

#: Seconds for an answer on a busy machine.
PATIENCE = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    """A broker of these tests' own: sequencers serve all causal topics of a cluster."""
    with LocalKafka(session_timeout=30) as running:
        yield running


@pytest.fixture
def ps(broker: LocalKafka) -> Iterator[PubSub]:
    with PubSub(broker.bootstrap) as opened:
        yield opened


@pytest.fixture
def other(broker: LocalKafka) -> Iterator[PubSub]:
    """Another process, as far as the library is concerned."""
    with PubSub(broker.bootstrap) as opened:
        yield opened


@pytest.fixture
def names(ps: PubSub, request: pytest.FixtureRequest) -> list[str]:
    """New causal topics."""
    return make_topics(ps, request.module.LETTERS)


def make_topics(ps: PubSub, letters: str) -> list[str]:
    """Makes a causal topic for each letter; returns their names."""
    prefix = uuid.uuid4().hex[:8]
    found = [f"{letter}-{prefix}" for letter in letters]
    for name in found:
        ps.create_topic(name, causal=True)
    return found


def log(broker: LocalKafka, name: str) -> list[Message]:
    """Returns the committed records of a topic, as a plain consumer gets them."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True}
    )
    consumer.assign([KafkaPartition(name, 0, 0)])
    found: list[Message] = []
    while (record := consumer.poll(PATIENCE)) is not None and record.error() is None:
        found.append(record)
    consumer.close()
    return found


def bodies(broker: LocalKafka, name: str) -> list[bytes]:
    """Returns the bodies of the committed records of a topic."""
    return [each.value() or b"" for each in log(broker, name)]
