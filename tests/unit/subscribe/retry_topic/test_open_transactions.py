"""A transaction that stays open in a retry partition is named in the log, with the command that ends it."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.counters import PARTS
from kafka_pubsub.log.memory import MemoryBackend, MemoryCluster
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.subscribe.retry_topic import open_transactions
from kafka_pubsub.subscribe.retry_topic.open_transactions import AGAIN, LOOK, PATIENCE, OpenTransactions
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE as ENOUGH

RETRY = "orders.sub.billing.retry"
PLACE = TopicPartition(RETRY, 1)


class Scene:
    """A retry topic with a single record that was read, and a transaction open behind it."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        self.now = 0.0
        self.cluster = MemoryCluster()
        self.backend = MemoryBackend(cluster=self.cluster)
        self.backend.admin.create_topic(RETRY, 2, None, {})
        self.cluster.append(RETRY, 1, b"read")
        self.begin("first")
        self.looks = OpenTransactions(self.backend, lambda: self.now)

    def begin(self, transaction: str) -> None:
        self.cluster.append(RETRY, 1, b"open", transaction=transaction)

    def watch(self, seconds: float, read: int = 1) -> list[str]:
        """What is logged within that time, with a look each second."""
        self._log.clear()
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.looks.look("billing", {TopicPartition(RETRY, 0): 0, PLACE: read})
        return [record.getMessage() for record in self._log.records]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    caplog.set_level(logging.ERROR, "kafka_pubsub.subscriber")
    return Scene(caplog)


def test_it_is_named_within_half_a_minute_with_the_command_that_ends_it(scene: Scene) -> None:
    (said,) = scene.watch(30)
    assert PATIENCE + 2 * LOOK < 30
    command = "kafka-transactions.sh --bootstrap-server memory abort"
    assert f"{command} --topic {RETRY} --partition 1 --start-offset 1" in said
    assert f"find-hanging --topic {RETRY}" in said


def test_it_is_not_named_at_each_look(scene: Scene) -> None:
    assert len(scene.watch(AGAIN)) == 1
    assert len(scene.watch(AGAIN)) == 1


def test_one_that_ends_in_time_is_not_named(scene: Scene) -> None:
    assert scene.watch(PATIENCE - 2 * LOOK) == []
    scene.cluster.finish_transaction(RETRY, 1, "first", committed=True)
    assert scene.watch(AGAIN) == []


def test_a_member_without_partitions_has_none(scene: Scene) -> None:
    scene.watch(30)
    assert scene.looks.seconds > 20
    scene.looks.look("billing", {})
    assert scene.looks.seconds == 0


def test_transactions_that_follow_each_other_are_not_one(scene: Scene) -> None:
    for number in range(5):
        assert scene.watch(PATIENCE - 2 * LOOK) == []
        scene.begin(f"{number}")
        scene.cluster.finish_transaction(
            RETRY, 1, "first" if number == 0 else f"{number - 1}", committed=True
        )


def test_nothing_more_is_asked_where_all_was_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(scene.backend.admin), "last_stable_offsets", lambda *_: pytest.fail("asked"))
    assert scene.watch(30, read=2) == []


def test_a_stream_that_is_held_up_says_so_and_goes_on_when_it_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "PATIENCE", 0.0)
    monkeypatch.setattr(open_transactions, "LOOK", 0.0)
    cluster = MemoryCluster()
    acked = threading.Event()

    def handle(message: Message) -> None:
        message.ack()
        acked.set()

    with PubSub.in_memory(MemoryBackend(cluster=cluster)) as ps:
        ps.create_topic("orders", partitions=2)
        sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=RetryPolicy())
        for partition in range(2):
            cluster.append(RETRY, partition, b"open", transaction="foreign")
        with sub.pull(handle) as stream:
            ps.topic("orders").publish(b"1", ordering_key="k").result(ENOUGH)
            until(lambda: f"abort --topic {RETRY} --partition 0 --start-offset 0" in caplog.text, "its name")
            assert not acked.is_set()
            for partition in range(2):
                cluster.finish_transaction(RETRY, partition, "foreign", committed=False)
            assert acked.wait(ENOUGH)
            assert not stream.done()


def test_of_several_streams_one_tells_how_long_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "LOOK", 0.0)
    cluster = MemoryCluster()

    def told() -> float:
        found = (
            each.gauges.get("open_transaction", 0.0) for each in PARTS.read() if dict(each.labels) == labels
        )
        return sum(found)

    labels = {"subscription": "held-up", "topic": "orders"}
    with PubSub.in_memory(MemoryBackend(cluster=cluster)) as ps:
        ps.create_topic("orders", partitions=2)
        sub = ps.create_subscription("held-up", "orders", message_ordering=True, retry=RetryPolicy())
        for partition in range(2):
            cluster.append("orders.sub.held-up.retry", partition, b"open", transaction="foreign")
        began = time.monotonic()
        with sub.pull(Message.ack), sub.pull(Message.ack), sub.pull(Message.ack):
            until(lambda: told() > 0.5, "an open transaction")
            assert told() <= time.monotonic() - began
