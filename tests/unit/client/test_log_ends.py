"""Markers at the end of a log leave no lag, while a stream is open and when it closes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import pytest

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.client.assignment import log_ends
from kafka_pubsub.memory import MemoryBackend, MemoryCluster
from kafka_pubsub.memory.reader import MemoryReader
from kafka_pubsub.model import TopicPartition
from tests.support import until
from tests.unit.client.holding import PATIENCE

RETRY = "orders.sub.billing.retry"


class Scene:
    """One subscription on a cluster whose transactions leave markers."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.backend = MemoryBackend(cluster=self.cluster)
        self.ps = PubSub.in_memory(MemoryBackend(cluster=self.cluster))
        self.ps.create_topic("orders", partitions=2)
        retry = RetryPolicy(min_backoff=0.01, max_backoff=0.05)
        self.sub = self.ps.create_subscription("billing", "orders", message_ordering=True, retry=retry)
        self.acked: set[str] = set()

    def publish(self, count: int) -> None:
        for number in range(count):
            self.ps.topic("orders").publish(b"%d" % number, ordering_key=f"k{number}").result(PATIENCE)

    def await_acked(self, count: int) -> None:
        until(lambda: len(self.acked) == count, f"{count} messages acked")

    def ack(self, message: Message) -> None:
        message.ack()
        self.acked.add(message.message_id)

    def nack_once(self, message: Message) -> None:
        if message.delivery_attempt == 1:
            message.nack()
        else:
            self.ack(message)

    def lag(self) -> int:
        """As Kafka's own tools compute it."""
        lag = 0
        for topic in ("orders", RETRY):
            committed = self.backend.admin.group_offsets("billing", topic)
            ends = self.backend.admin.high_watermarks([TopicPartition(topic, number) for number in committed])
            lag += sum(end - (committed[place.partition].offset or 0) for place, end in ends.items())
        return lag


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.ps.close()


def test_markers_in_main_are_committed_while_the_stream_is_open(scene: Scene) -> None:
    with scene.sub.pull(scene.ack):
        scene.publish(4)
        scene.await_acked(4)
        for partition in range(2):
            scene.cluster.skip_offsets("orders", partition, 3)
        until(lambda: scene.lag() == 0, "no lag")


def test_markers_behind_parked_messages_are_committed(scene: Scene) -> None:
    with scene.sub.pull(scene.nack_once):
        scene.publish(4)
        scene.await_acked(4)
        for partition in range(2):
            scene.cluster.skip_offsets(RETRY, partition)
        until(lambda: scene.lag() == 0, "no lag")


def test_a_stream_that_closes_passes_markers_before_it_leaves(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_ends.LogEnds, "look", lambda self: None)
    with scene.sub.pull(scene.ack):
        scene.publish(4)
        scene.await_acked(4)
        scene.cluster.skip_offsets("orders", 0)
    assert scene.lag() == 0


def test_a_stream_that_closes_asks_about_the_ends_of_all_partitions_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = MemoryReader.at_end

    def at_end(reader: MemoryReader, partitions: Sequence[TopicPartition]) -> Set[TopicPartition]:
        asked.append(len(partitions))
        return real(reader, partitions)

    monkeypatch.setattr(MemoryReader, "at_end", at_end)
    with scene.sub.pull(scene.ack) as stream:
        until(lambda: len(stream.stats.partitions) == 2, "both partitions")
    assert asked == [4]  # of two partitions, and of their retry partitions


def test_what_waits_is_a_lag(scene: Scene) -> None:
    with scene.sub.pull(lambda message: message.nack(delay=600)) as stream:
        scene.publish(1)
        until(lambda: stream.stats.relocated == 1, "a message that waits")
        for partition in range(2):
            scene.cluster.skip_offsets(RETRY, partition)
    assert scene.lag() >= 1
