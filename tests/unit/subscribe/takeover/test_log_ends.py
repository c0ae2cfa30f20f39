"""Markers at the end of a log leave no lag, while a stream is open and when it closes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set

import pytest

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.log.memory import MemoryBackend, MemoryCluster
from kafka_pubsub.log.memory.reader import MemoryReader
from kafka_pubsub.model import LogEnd, TopicPartition
from kafka_pubsub.subscribe.takeover import log_ends
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

RETRY = "orders.sub.billing.retry"


class Scene:
    """A single subscription on a cluster whose transactions leave markers."""

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

    def keep_one(self, message: Message) -> None:
        if message.ordering_key == "k3":
            message.nack(delay=600)
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


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that no broker tells the end of a log: their positions stay before markers, however long one waits."""
    real = MemoryReader.positions

    def positions(
        reader: MemoryReader, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd]:
        found = {}
        for place, end in real(reader, partitions).items():
            records = reader._cluster.log(place).read(0, end.offset)
            found[place] = LogEnd(max([0, *((record.offset() or 0) + 1 for record in records)]), end.epoch)
        return found

    monkeypatch.setattr(MemoryReader, "positions", positions)
    monkeypatch.setattr(MemoryReader, "at_end", lambda reader, partitions: set())
    monkeypatch.setattr(log_ends, "SETTLE", PATIENCE)
    monkeypatch.setattr(log_ends, "SAVING", PATIENCE)


@pytest.mark.parametrize("conduct", ["ack", "nack_once", "keep_one"])
def test_a_stream_that_closes_asks_for_the_ends_that_its_reader_is_not_told(
    scene: Scene, untold: None, monkeypatch: pytest.MonkeyPatch, conduct: str
) -> None:
    asked: list[int] = []
    real = MemoryReader.readable_ends

    def readable_ends(
        reader: MemoryReader, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, LogEnd]:
        asked.append(len(partitions))
        return real(reader, partitions, timeout)

    monkeypatch.setattr(MemoryReader, "readable_ends", readable_ends)
    stream = scene.sub.pull(getattr(scene, conduct))
    scene.publish(6)
    scene.await_acked(6 if conduct != "keep_one" else 5)
    began = time.monotonic()
    stream.close()
    assert time.monotonic() - began < PATIENCE / 2
    assert asked == [4 if conduct != "keep_one" else 3]
    assert scene.lag() == 0 if conduct != "keep_one" else scene.lag() > 0


def test_what_waits_is_a_lag(scene: Scene) -> None:
    with scene.sub.pull(lambda message: message.nack(delay=600)) as stream:
        scene.publish(1)
        until(lambda: stream.stats.moved == 1, "a message that waits")
        for partition in range(2):
            scene.cluster.skip_offsets(RETRY, partition)
    assert scene.lag() >= 1
