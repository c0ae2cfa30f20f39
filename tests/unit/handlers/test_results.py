"""Returned values: how they are encoded, and that the message waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from kafka_pubsub import Message, PublishError, PubSub
from kafka_pubsub.handlers.results import Results
from kafka_pubsub.topic import Topic


@pytest.fixture
def topic(pubsub: PubSub) -> Topic:
    return pubsub.create_topic("values")


@pytest.fixture
def message(pubsub: PubSub) -> Iterator[Message]:
    pubsub.create_topic("orders").publish(b"x", ordering_key="ada").result(10)
    yield from pubsub.topic("orders").tail(1)


@pytest.mark.parametrize(
    ("value", "body"), [(b"\xff", b"\xff"), ("größe", "größe".encode()), ([1], b"[1]"), (0, b"0"), ("", b"")]
)
def test_a_value_is_stored_under_the_key_when_the_call_returns(
    topic: Topic, message: Message, value: object, body: bytes
) -> None:
    Results(topic, "x").publish(message, value)
    (stored,) = topic.tail(10)
    assert (stored.data, stored.ordering_key) == (body, "ada")


def test_nothing_is_published_for_none(topic: Topic, message: Message) -> None:
    Results(topic, "x").publish(message, None)
    Results(topic, "x").publish_batch([message], None)
    Results(topic, "x").publish_batch([message], [None])
    assert list(topic.tail(10)) == []


def test_a_failed_value_resumes_its_key(
    topic: Topic, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed = list[str]()
    failed: Future[str] = Future()
    failed.set_exception(PublishError("the broker refuses it"))
    monkeypatch.setattr(Topic, "publish", lambda self, data, **options: failed)
    monkeypatch.setattr(Topic, "resume", lambda self, key: resumed.append(key))
    results = Results(topic, "x")
    with pytest.raises(PublishError):
        results.publish(message, b"x")
    with pytest.raises(PublishError):
        results.publish_batch([message], [b"x"])
    assert resumed == ["ada", "ada"]
