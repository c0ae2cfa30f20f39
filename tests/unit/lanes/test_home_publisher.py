"""Lanes that come to a live topic, that other clients delete or change, and brokers whose clocks step back."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

import pytest

from kafka_pubsub import FailedPrecondition, Message, PubSub, Topic
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.subscribe.takeover import listener
from tests.support import until
from tests.unit.lanes.handling import Handler

PATIENCE = 30.0


def test_lanes_that_come_to_a_live_topic_lose_and_reorder_nothing(ps: PubSub) -> None:
    """Publishers and two streams go on while the topic gets its lanes and uses in turn."""
    topic = ps.create_topic("jobs", partitions=3)
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    came: defaultdict[str, list[int]] = defaultdict(list)
    lock, laned, sent = threading.Lock(), threading.Event(), Counter[str]()
    handler = Handler()

    def publish(name: int) -> None:
        lanes = [(4, True), (9, True), (4, False), (0, True), (9, False)]
        for number in range(120):
            key = f"k{name}-{number % 4}"
            if number == 40:
                assert laned.wait(PATIENCE)
                topic.flush()
            priority, durable = lanes[(number // 10) % 5] if number >= 40 else (None, None)
            options = {} if priority is None else {"priority": priority, "durable": durable}
            topic.publish(b"%d" % number, ordering_key=key, **options)  # type: ignore[arg-type]
            with lock:
                sent[key] += 1

    threads = [threading.Thread(target=publish, args=(name,)) for name in range(2)]

    def take(message: Message) -> None:
        with lock:
            came[message.ordering_key or ""].append(int(message.data))
        handler(message)

    with sub.pull(take), sub.pull(take):
        for thread in threads:
            thread.start()
        handler.until(80)  # messages from before the lanes know no order with messages in new lanes
        ps.update_topic("jobs", priorities=10, transient=True)
        laned.set()
        for thread in threads:
            thread.join(PATIENCE)
        topic.flush()
        until(lambda: {key: len(set(numbers)) for key, numbers in came.items()} == dict(sent))
    for key, numbers in came.items():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first), f"{key} came as {numbers}"


def test_a_lane_that_is_deleted_under_a_stream_ends_it_with_the_reason(
    ps: PubSub, backend: MemoryBackend, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "DENIED", 0.5)
    topic.publish(b"x", priority=7).result(PATIENCE)
    sub = ps.create_subscription("billing", topic)
    handler = Handler()
    stream = sub.pull(handler)
    topic.publish(b"y", priority=7).result(PATIENCE)
    handler.until(1)
    backend.admin.delete_topic("jobs.lane.p7")
    with pytest.raises(
        FailedPrecondition, match=r"lane 'jobs\.lane\.p7' of topic 'jobs' was deleted from Kafka"
    ):
        stream.result(PATIENCE)
    with pytest.raises(FailedPrecondition, match=r"lane 'jobs\.lane\.p7' of topic 'jobs' was deleted"):
        sub.pull(handler)


def test_a_lane_that_is_deleted_and_made_again_under_a_stream_ends_it_with_the_reason(
    ps: PubSub, backend: MemoryBackend, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "DENIED", 0.5)
    sub = ps.create_subscription("billing", topic)
    topic.publish(b"x", priority=7).result(PATIENCE)
    handler = Handler()
    stream = sub.pull(handler)
    handler.until(1)
    backend.admin.delete_topic("jobs.lane.p7")
    backend.admin.create_topic("jobs.lane.p7", 1, None, {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(FailedPrecondition, match=r"lane 'jobs\.lane\.p7' .* deleted .* and made again"):
        stream.result(PATIENCE)


def test_a_lane_that_gets_more_partitions_under_a_stream_ends_it_with_the_reason(
    ps: PubSub, backend: MemoryBackend, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "DENIED", 0.5)
    topic.publish(b"x", priority=7).result(PATIENCE)
    stream = ps.create_subscription("billing", topic).pull(Handler())
    until(lambda: ps.subscription("billing").state().members == 1)
    backend.cluster.add_partitions("jobs.lane.p7", 2)
    with pytest.raises(FailedPrecondition, match=r"lane 'jobs\.lane\.p7' .* 2 partitions .* must have 1"):
        stream.result(PATIENCE)


def test_a_lane_with_another_partition_count_is_refused_and_named(
    ps: PubSub, backend: MemoryBackend, topic: Topic
) -> None:
    topic.publish(b"x", priority=7).result(PATIENCE)
    sub = ps.create_subscription("billing", topic)
    backend.cluster.add_partitions("jobs.lane.p7", 2)
    with pytest.raises(FailedPrecondition, match=r"'jobs\.lane\.p7'.*2 partitions.*must have 1"):
        sub.pull(Handler())


def test_a_clock_that_steps_back_blocks_nothing_and_keeps_each_lanes_order(
    ps: PubSub, backend: MemoryBackend, topic: Topic
) -> None:
    """What stands before an earlier time counts with that time: 50, 50, 120 in a lane and 20, 20, 20 in the other."""
    for durable in (True, False):
        topic.publish(b"makes the lane", durable=durable).result(PATIENCE)
    sub = ps.create_subscription("billing", topic)
    for name, times in (("jobs", (100, 50, 120)), ("jobs.lane.t4", (60, 110, 20))):
        backend.admin.update_topic(name, {"message.timestamp.type": "CreateTime"})  # the test sets the times
        for at in times:
            backend.cluster.append(
                name, 0, b"%d of %s" % (at, name.encode()), None, None, timestamp=float(at)
            )
    handler = Handler()
    with sub.pull(handler, max_workers=1):
        handler.until(6)
    assert [data.split()[0] for data in handler.data] == [b"60", b"110", b"20", b"100", b"50", b"120"]
