"""Lanes under load: more messages than there is room for, in more lanes than may be read ahead at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from kafka_pubsub import FlowControl, Message, PubSub
from kafka_pubsub.log.memory.reader import MemoryReader
from kafka_pubsub.model import TopicPartition
from tests.support import until

BODY = bytes(1000)


def fill(
    ps: PubSub, per_lane: int, lanes: Sequence[int] = range(10), *, body: bytes = BODY, mixed: bool = False
) -> None:
    """Publishes so many messages to each lane; the lanes have their subscription before. `mixed`: keys change lanes."""
    topic = ps.topic("jobs")
    topic.publish_many(
        {"data": body, "priority": priority, "ordering_key": f"{number}" if mixed else f"{number}-{priority}"}
        for number in range(per_lane)
        for priority in lanes
    ).result(60)


@pytest.mark.parametrize(
    ("ordering", "mixed", "count"), [(False, False, 1000), (True, False, 300), (True, True, 30)]
)
def test_a_backlog_in_ten_lanes_that_is_larger_than_the_room_arrives(
    ordering: bool, mixed: bool, count: int
) -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("jobs", partitions=8, priorities=10)
        sub = ps.create_subscription("billing", "jobs", message_ordering=ordering)
        fill(ps, count, mixed=mixed)
        came: Counter[int] = Counter()
        lock = threading.Lock()

        def handle(message: Message) -> None:
            with lock:
                came[message.priority] += 1
            message.ack()

        with sub.pull(handle, flow=FlowControl(max_bytes=max(65_536, 1000 * count))):
            until(lambda: came.total() >= 10 * count, patience=60)
    assert came == dict.fromkeys(range(10), count)


def test_a_low_message_is_read_and_ages_while_high_ones_fill_the_room() -> None:
    """In each partition, wherever the message is. Few high messages begin between its time and its callback."""
    ageing = 0.5
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("jobs", partitions=8, priorities=10)
        for priority in (0, 9):
            topic.publish(b"makes the lane", priority=priority).result(10)
        sub = ps.create_subscription("billing", "jobs", ageing=ageing)
        fill(ps, 6000, [9])
        sent: dict[str, float] = {}
        began: dict[str, float] = {}
        high: list[float] = []

        def handle(message: Message) -> None:
            now = time.monotonic()
            if message.priority == 0:
                began[message.data.decode()] = now
            else:
                high.append(now)
            time.sleep(0.002)
            message.ack()

        with sub.pull(handle, max_workers=4, flow=FlowControl(max_bytes=500_000)) as stream:
            until(lambda: stream.stats.acked > 100)
            for number in range(8):
                sent[str(number)] = time.monotonic()
                topic.publish(str(number).encode(), priority=0, ordering_key=f"low-{number}").result(10)
            until(lambda: len(began) == 8)
            assert stream.stats.acked < 6000, "high ones still wait"
    for low, at in sent.items():
        before = sum(at + ageing < each < began[low] for each in high)
        assert before < 500, "of 6,000 and more"


def test_one_lane_that_flows_is_paused_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[TopicPartition] = []
    pause = MemoryReader.pause

    def counted(self: MemoryReader, partitions: Sequence[TopicPartition]) -> None:
        paused.extend(partitions)
        pause(self, partitions)

    monkeypatch.setattr(MemoryReader, "pause", counted)
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("jobs", partitions=2, priorities=10)
        for priority in range(10):
            topic.publish(b"makes the lane", priority=priority).result(10)
        sub = ps.create_subscription("billing", "jobs")
        fill(ps, 20_000, [4], body=b"x")
        with sub.pull(Message.ack) as stream:
            until(lambda: stream.stats.acked >= 20_000, patience=60)
    assert len(paused) < 20


@pytest.mark.parametrize("blocked", [0, 9])
def test_lanes_of_large_messages_are_read_ahead_within_limits(blocked: int) -> None:
    """Nothing of a lane is ever finished: of 40 MB that wait, eight times `max_bytes` are held at most."""
    most = 2_000_000
    with PubSub.in_memory() as ps:
        ps.create_topic("jobs", partitions=4, priorities=10)
        sub = ps.create_subscription("billing", "jobs")
        fill(ps, 200, body=bytes(20_000))
        ending, held = threading.Event(), list[int]()

        def handle(message: Message) -> None:
            if message.priority == blocked:
                ending.wait(60)
            message.ack()

        with sub.pull(handle, flow=FlowControl(max_bytes=most)) as stream:
            until(lambda: stream.stats.buffered_bytes > most / 10)
            looking_until = time.monotonic() + 2
            while time.monotonic() < looking_until:
                held.append(stream.stats.buffered_bytes)
                ending.wait(0.01)
            ending.set()
    assert max(held) <= 8 * most, f"{max(held):,} bytes at most"
