"""A retry topic that comes, goes, or is made again while its subscription is being received from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_pubsub import FailedPrecondition, Message, PubSub, RetryPolicy
from kafka_pubsub.config import RetryTopic, SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.model import Committed
from kafka_pubsub.subscribe import deletion_watch
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.retry_topic.retry_topics import RetryTopicGone, marked_nonce, retry_beginning
from kafka_pubsub.subscribe.takeover import listener
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

RETRY = "orders.sub.billing.retry"
QUICK = RetryPolicy(min_backoff=0.01, max_backoff=0.02)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is noticed soon, and "not found" is believed soon."""
    real = deletion_watch.Watch.__init__

    def often(self: deletion_watch.Watch, subscriptions: Any, subscribers: Any) -> None:
        real(self, subscriptions, subscribers, 0.05)

    monkeypatch.setattr(deletion_watch.Watch, "__init__", often)
    monkeypatch.setattr(listener, "DENIED", 0.3)
    monkeypatch.setattr(listener, "TRY_AGAIN", 0.05)


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders", partitions=2)
        ps.create_subscription("billing", "orders", message_ordering=True, retry=QUICK)
        yield ps


def record_of(backend: MemoryBackend) -> SubscriptionRecord:
    return backend.catalog.subscriptions()["billing"]


def publish(ps: PubSub, numbers: range) -> None:
    for future in [ps.topic("orders").publish(b"%d" % n, ordering_key=f"k{n % 3}") for n in numbers]:
        future.result(PATIENCE)


class Handler:
    """Nacks every fifth message once."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        #: Messages that it never acks. Empty: each is acked at the second delivery at the latest.
        self.refused: set[int] = set()

    def __call__(self, message: Message) -> None:
        number = int(message.data)
        if number in self.refused or (number % 5 == 0 and message.delivery_attempt == 1):
            message.nack()
        else:
            self.acked.append(number)
            message.ack()

    def has(self, numbers: range) -> bool:
        return set(numbers) <= set(self.acked)

    def in_order(self) -> None:
        for key in range(3):
            numbers = list(dict.fromkeys(number for number in self.acked if number % 3 == key))
            assert numbers == sorted(numbers), numbers


def test_one_that_is_made_again_is_gone_on_with(
    ps: PubSub, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka_pubsub")
    handle = Handler()
    with ps.subscription("billing").pull(handle) as stream:
        publish(ps, range(30))
        until(lambda: handle.has(range(30)))
        until(lambda: ps.subscription("billing").state().lag == 0)
        backend.admin.delete_topic(RETRY)
        ps.update_subscription("billing", remake_retry_topic=True)
        before = stream.stats.moved
        publish(ps, range(30, 60))
        until(lambda: handle.has(range(60)))
        until(lambda: stream.stats.moved > before)
        assert not stream.done()
    handle.in_order()
    assert ps.subscription("billing").state().lag == 0
    with ps.subscription("billing").pull(handle):
        publish(ps, range(60, 70))
        until(lambda: handle.has(range(70)))


def test_a_deleted_one_ends_the_stream_with_a_reason_and_loses_nothing_of_the_topic(
    ps: PubSub, backend: MemoryBackend
) -> None:
    handle = Handler()
    with ps.subscription("billing").pull(handle) as stream:
        publish(ps, range(30))
        until(lambda: handle.has(range(30)))
        backend.admin.delete_topic(RETRY)
        with pytest.raises(FailedPrecondition, match=r"retry topic .* was deleted by another client"):
            stream.result(PATIENCE)
    publish(ps, range(30, 40))
    with pytest.raises(FailedPrecondition, match="remake_retry_topic=True"):
        ps.subscription("billing").pull(handle)
    ps.update_subscription("billing", remake_retry_topic=True)
    with ps.subscription("billing").pull(handle):
        until(lambda: handle.has(range(40)))
    handle.in_order()


def test_one_that_a_young_broker_denies_for_a_moment_is_waited_for(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has just started says of every topic that there is none."""
    monkeypatch.setattr(listener, "DENIED", PATIENCE)
    handle = Handler()
    denied: list[str] = []
    look_up = ps._cluster.subscriptions.usable

    def deny(name: str) -> SubscriptionRecord:
        if len(denied) < 3:
            denied.append(name)
            raise RetryTopicGone("no such topic")
        return look_up(name)

    with ps.subscription("billing").pull(handle) as stream:
        publish(ps, range(10))
        until(lambda: handle.has(range(10)))
        monkeypatch.setattr(ps._cluster.subscriptions, "usable", deny)
        with PubSub.in_memory(MemoryBackend(cluster=backend.cluster)) as other:
            with other.subscription("billing").pull(handle):
                until(lambda: len(denied) == 3)
            publish(ps, range(10, 20))
            until(lambda: handle.has(range(20)))
        assert not stream.done()


def test_one_with_more_partitions_ends_the_stream_with_a_reason(ps: PubSub, backend: MemoryBackend) -> None:
    handle = Handler()
    with ps.subscription("billing").pull(handle) as stream:
        publish(ps, range(30))
        until(lambda: handle.has(range(30)))
        backend.admin.add_partitions(RETRY, 3)
        with pytest.raises(FailedPrecondition, match="has 3 partitions and must have 2"):
            stream.result(PATIENCE)


def test_a_log_that_ends_below_the_commit_is_gone_on_with_from_the_copy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retry = RetryTopic(name=RETRY, topic_id="r", positions={0: 3, 1: 9})
    record = SubscriptionRecord(
        name="billing",
        topic="orders",
        topic_id="t",
        partitions=2,
        options=SubscriptionOptions(),
        retry_topic=retry,
    )
    assert retry_beginning(record, 0, Committed(12, ""), (0, 7)).position == 3
    assert retry_beginning(record, 1, Committed(12, ""), (0, 7)).position == 7
    assert "ends at offset 7 of partition 0, below the committed 12" in caplog.text


def test_a_position_that_speaks_of_an_earlier_topic_is_not_believed() -> None:
    """The new topic has grown beyond the position: believed, earlier messages would never be delivered."""
    retry = RetryTopic(name=RETRY, topic_id="new", positions={0: 0})
    record = SubscriptionRecord(
        name="billing",
        topic="orders",
        topic_id="t",
        partitions=1,
        options=SubscriptionOptions(),
        retry_topic=retry,
    )
    earlier = record.model_copy(update={"retry_topic": retry.model_copy(update={"topic_id": "old"})})

    def committed(by: SubscriptionRecord) -> Committed:
        return Committed(12, ack_map.encode(AckMap(1, ((14, 15),), nonce=marked_nonce(by, 99)), 12))

    assert retry_beginning(record, 0, committed(earlier), (0, 40)).position == 0
    assert retry_beginning(record, 0, committed(record), (0, 40)).position == 12
    assert list(retry_beginning(record, 0, committed(record), (0, 40)).known) == [(14, 15)]
