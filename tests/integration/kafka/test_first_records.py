"""The first record of a producer doesn't wait for the 0.5 s after which librdkafka asks again for the producer's id."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka_pubsub.config import Batching, TopicOptions, TopicRecord
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.model import Ending, NewRecord
from tests.integration.kafka.conftest import MakeBackend

#: Seconds; a producer that isn't introduced takes 0.5 or more, a transactional one in half of the tries.
SOON = 0.4
#: Tries, and how many of them must be quick: the machine may be busy.
TRIES, QUICK = 12, 9


def write(backend: KafkaBackend, topic: str) -> None:
    writer = backend.writer(Batching(), 1_000_000)
    errors: list[object] = []
    writer.append(topic, b"x", b"k", None, lambda error, record: errors.append(error))
    while not errors:
        writer.poll(0.1)
    assert errors == [None]


def transact(backend: KafkaBackend, topic: str) -> None:
    writer = backend.transactions(f"first-{topic}-{time.monotonic()}")
    assert writer.transact([NewRecord(topic, 0, b"k", b"x", [], 0)], {}, None).ending is Ending.STORED


def change_catalog(backend: KafkaBackend, topic: str) -> None:
    known = backend.catalog.topics()[topic]
    backend.catalog.put_topic(known.model_copy(update={"created": known.created + 1}), known)


@pytest.mark.parametrize("first", [write, transact, change_catalog])
def test_a_first_record_is_stored_soon(
    first: Callable[[KafkaBackend, str], None], make_backend: MakeBackend, unique: Callable[[str], str]
) -> None:
    topic, backend = unique("first"), make_backend()
    topic_id = backend.admin.create_topic(topic, 1, None, {}).topic_id
    backend.catalog.put_topic(TopicRecord(name=topic, topic_id=topic_id, options=TopicOptions()), None)
    seconds: list[float] = []
    for _ in range(TRIES):
        backend = make_backend()
        assert topic in backend.catalog.topics()
        began = time.monotonic()
        first(backend, topic)
        seconds.append(time.monotonic() - began)
    assert sum(each < SOON for each in seconds) >= QUICK, seconds
