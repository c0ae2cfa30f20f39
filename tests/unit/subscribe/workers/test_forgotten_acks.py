"""A message that was neither acked nor nacked is named in a warning, once for each subscription in a process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from kafka_pubsub import Message, PubSub, Subscription
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.subscribe.workers import forgotten_acks
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

WHAT_TO_DO = ("message.ack()", "message.nack()", "message.extend(seconds)")


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders", partitions=1)
        yield ps


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    return ps.create_subscription("billing", "orders", message_ordering=True, ack_deadline=1)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(forgotten_acks, "_logged", set())
    monkeypatch.setattr(forgotten_acks, "_logged_late", set())
    caplog.set_level(logging.WARNING, "kafka_pubsub.subscriber")
    return caplog


def publish(ps: PubSub, *keys: str | None) -> None:
    for key in keys:
        ps.topic("orders").publish(b"x", ordering_key=key).result(PATIENCE)


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in log.records if "neither acked nor nacked" in each.getMessage()]


class Forgets:
    """A callback that never acks; `came` counts deliveries."""

    def __init__(self) -> None:
        self.came = 0

    def __call__(self, message: Message | list[Message]) -> None:
        self.came += 1


def test_it_is_said_once_with_the_key_and_what_to_do(
    ps: PubSub, sub: Subscription, backend: MemoryBackend, log: pytest.LogCaptureFixture
) -> None:
    handle = Forgets()
    publish(ps, "k1", "k2")
    with sub.pull(handle):
        until(lambda: handle.came >= 4, "the second delivery of both")
    with sub.pull_batch(handle):
        until(lambda: handle.came >= 6, "one more delivery")
    other = PubSub.in_memory(MemoryBackend(cluster=backend.cluster))
    with other, other.subscription("billing").pull(handle):
        until(lambda: handle.came >= 8, "a delivery in another PubSub")
    (said,) = warnings(log)
    assert said.startswith("subscription 'billing': message orders:0:")
    assert " with ordering key 'k" in said
    assert "deadline has passed" in said
    assert all(words in said for words in WHAT_TO_DO)


def test_without_a_key_the_message_is_named(
    ps: PubSub, sub: Subscription, log: pytest.LogCaptureFixture
) -> None:
    publish(ps, None)
    with sub.pull(Forgets()):
        until(lambda: warnings(log))
    assert "message orders:0:0 was neither" in warnings(log)[0]


def test_a_message_that_was_received_and_forgotten_is_named_after_its_deadline(
    ps: PubSub, sub: Subscription, log: pytest.LogCaptureFixture
) -> None:
    publish(ps, "k1")
    assert len(sub.receive(1, PATIENCE)) == 1
    until(lambda: warnings(log))
    assert "'k1'" in warnings(log)[0]


def test_a_stream_that_is_closed_first_says_it_too(ps: PubSub, log: pytest.LogCaptureFixture) -> None:
    patient = ps.create_subscription("patient", "orders", ack_deadline=600)
    handle = Forgets()
    publish(ps, "k1")
    with patient.pull(handle):
        until(lambda: handle.came)
        assert warnings(log) == []
    (said,) = warnings(log)
    assert "'k1'" in said
    assert "its stream was closed" in said


def test_nothing_is_said_of_what_was_acked_on_another_thread_or_only_looked_at(
    ps: PubSub, log: pytest.LogCaptureFixture
) -> None:
    patient = ps.create_subscription("patient", "orders", message_ordering=True, ack_deadline=600)
    came: list[Message] = []
    first = threading.Event()

    def keep(message: Message) -> None:
        came.append(message)
        first.set()

    publish(ps, "k1")
    with patient.pull(keep) as stream:
        assert first.wait(PATIENCE)
        came[0].ack()
        until(lambda: stream.stats.acked == 1)
    publish(ps, "k2")
    assert len(patient.receive(1, PATIENCE)) == 1
    ps.close()
    assert warnings(log) == []


def test_an_ack_after_the_end_of_the_block_is_reported_once(
    ps: PubSub, sub: Subscription, log: pytest.LogCaptureFixture
) -> None:
    publish(ps, "k1")
    for _ in range(2):
        with ps.subscription("billing") as block:
            (message,) = block.receive(1, PATIENCE)
        message.ack()
        sub.acknowledge([message.ack_id])
    (said,) = [each.getMessage() for each in log.records if "changed nothing" in each.getMessage()]
    assert said.startswith("subscription 'billing': an ack, nack or extension came after")
    assert message.delivery_attempt == 1
