"""A broker without services: a process that publishes messages for a service is warned in time, and closes soon."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.local import LocalKafka
from tests.support import until

#: Seconds within which a warning comes after the message, and a close may take; with some for a busy machine.
WARNED, CLOSED = 5.0, 15.0


@pytest.fixture(scope="module")
def lonely() -> Iterator[str]:
    with LocalKafka() as kafka:
        yield kafka.bootstrap


@pytest.fixture
def ps(lonely: str) -> Iterator[PubSub]:
    with PubSub(lonely) as pubsub:
        pubsub.create_topic("jobs", exist_ok=True)
        for name in ("orders", "stock"):
            pubsub.create_topic(name, causal=True, exist_ok=True)
        yield pubsub


def warning(caplog: pytest.LogCaptureFixture, service: str) -> list[logging.LogRecord]:
    words = f"`kafka-pubsub service {service}` starts one"
    return [each for each in caplog.records if each.levelno == logging.WARNING and words in each.getMessage()]


@pytest.mark.parametrize(
    ("service", "publish"),
    [
        ("router", lambda ps: ps.topic("jobs").publish(b"later", delay=60).result(30)),
        ("sequencer", lambda ps: ps.publish_multi(["orders", "stock"], b"to both")),
    ],
)
def test_a_publisher_is_warned_within_seconds(
    ps: PubSub, service: str, publish: Callable[[PubSub], object], caplog: pytest.LogCaptureFixture
) -> None:
    publish(ps)
    published = time.time()
    until(lambda: warning(caplog, service), patience=30.0)
    assert warning(caplog, service)[0].created - published < WARNED


def test_a_close_takes_seconds_and_says_what_it_leaves(lonely: str, ps: PubSub) -> None:
    with PubSub(lonely) as other:
        future = other.publish_multi(["orders", "stock"], b"to both")
        began = time.monotonic()
    assert time.monotonic() - began < CLOSED
    with pytest.raises(
        FailedPrecondition, match="closed with the message staged: delivered by the next sequencer"
    ):
        future.result(0)
