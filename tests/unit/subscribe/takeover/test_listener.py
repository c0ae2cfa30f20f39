"""Topics of a subscription that somebody deletes: what its streams say, over memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafka_pubsub import DeadLetterPolicy, FailedPrecondition, Message, PubSub
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.subscribe.takeover import listener
from tests.unit.subscribe.workers.holding import PATIENCE


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders", partitions=1)
        yield ps


def test_a_retry_topic_that_stays_away_ends_the_stream(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "DENIED", 0.05)
    sub = ps.create_subscription("billing", "orders", message_ordering=True)
    acked = threading.Event()

    def handle(message: Message) -> None:
        message.ack()
        acked.set()

    with sub.pull(handle) as stream:
        ps.topic("orders").publish(b"1").result(PATIENCE)
        assert acked.wait(PATIENCE)
        backend.admin.delete_topic("orders.sub.billing.retry")
        ps.topic("orders").publish(b"2").result(PATIENCE)
        with pytest.raises(FailedPrecondition, match="remake_retry_topic=True"):
            stream.result(PATIENCE)


def test_a_dead_letter_topic_that_is_gone_is_named_when_a_stream_is_opened(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("graves", partitions=1)
    sub = ps.create_subscription("billing", "orders", dead_letter=DeadLetterPolicy(topic="graves"))
    backend.admin.delete_topic("graves")
    with pytest.raises(FailedPrecondition, match=r"dead_letter\.topic 'graves' is gone"):
        sub.pull(print)
