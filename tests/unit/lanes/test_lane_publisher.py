"""Lanes where other things meet them: many messages at once, delays, the asyncio version, forks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, Message, PubSub, RetryPolicy, aio
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import TopicPartition
from tests.checker.judgement import judge
from tests.support import until

PATIENCE = 30.0


def test_a_delayed_message_comes_home_to_its_lane_with_its_id(ps: PubSub, cluster: MemoryCluster) -> None:
    jobs = ps.create_topic("jobs", partitions=1, priorities=3, transient=True)
    with DelayRouter(ps):
        ids = [
            jobs.publish(b"x", ordering_key="k", delay=0.05, priority=priority, durable=durable).result(
                PATIENCE
            )
            for priority, durable in ((2, None), (None, False), (None, None))
        ]
        for topic, message_id in zip(("jobs.lane.p2", "jobs.lane.t1", "jobs"), ids, strict=True):
            log = cluster.log(TopicPartition(topic, 0))
            until(lambda log=log: log.end > 0)  # type: ignore[misc]
            record = log.read(0, 1)[0]
            assert dict(record.headers() or ())["ps-id"] == message_id.encode()
            assert record.key() == b"k"
            # The message isn't in the order of its publishing any more.
            assert "ps-seq" not in dict(record.headers() or ())


def test_a_delayed_message_of_a_lane_is_cancelled_and_refused_like_any_other(
    ps: PubSub, backend: MemoryBackend
) -> None:
    jobs = ps.create_topic("jobs", partitions=1, priorities=3)
    with pytest.raises(InvalidArgument, match="priority 3: topic 'jobs'"):
        jobs.publish(b"x", delay=60, priority=3)
    with pytest.raises(InvalidArgument, match="exceeds the limit"):
        jobs.publish(b"x" * 2_000_000, delay=60, priority=2)
    assert jobs.publish(b"now", delay=0, priority=2).result(PATIENCE) == "jobs.lane.p2:0:0"
    with DelayRouter(ps):
        message_id = jobs.publish(b"x", ordering_key="k", delay=60, priority=2).result(PATIENCE)
        other = ps.create_topic("other")
        with pytest.raises(InvalidArgument, match=r"is a message of topic 'jobs\.lane\.p2'"):
            other.cancel(message_id)
        assert jobs.cancel(message_id)
    jobs.resume("k")


def test_many_messages_go_to_their_lanes_in_their_order(ps: PubSub) -> None:
    jobs = ps.create_topic("jobs", partitions=1, priorities=3, transient=True)
    futures = jobs.publish_many(
        [
            b"a",
            {"data": b"b", "priority": 2},
            {"data": b"c", "durable": False, "ordering_key": "k"},
            {"data": b"d", "priority": None, "ordering_key": "k", "attributes": {"n": "1"}},
        ]
    )
    assert futures.result(PATIENCE) == ["jobs:0:0", "jobs.lane.p2:0:0", "jobs.lane.t1:0:0", "jobs:0:1"]
    assert futures[1].result() == "jobs.lane.p2:0:0"
    assert jobs.publish_json({"a": 1}, priority=0).result(PATIENCE) == "jobs.lane.p0:0:0"


def test_many_messages_may_be_delayed_and_in_lanes(ps: PubSub, cluster: MemoryCluster) -> None:
    jobs = ps.create_topic("jobs", partitions=1, priorities=3)
    with pytest.raises(InvalidArgument, match=r"items\[1\]: priority 3"):
        jobs.publish_many([b"a", {"data": b"b", "delay": 60, "priority": 3}])
    with DelayRouter(ps):
        ids = jobs.publish_many(
            [
                {"data": b"a", "priority": 2},
                {"data": b"b", "priority": 2, "delay": 0.05, "ordering_key": "k"},
                {"data": b"c", "delay": 0.05},
                b"d",
            ]
        ).result(PATIENCE)
        assert [ids[0], ids[3]] == ["jobs.lane.p2:0:0", "jobs:0:0"]
        for topic, body, message_id in (("jobs.lane.p2", b"b", ids[1]), ("jobs", b"c", ids[2])):
            log = cluster.log(TopicPartition(topic, 0))
            until(lambda log=log: log.end > 1)  # type: ignore[misc]
            record = log.read(1, 1)[0]
            assert record.value() == body
            assert dict(record.headers() or ())["ps-id"] == message_id.encode()


def test_coroutines_publish_to_lanes_without_blocking() -> None:
    async def run() -> None:
        async with aio.PubSub.in_memory() as ps:
            jobs = await ps.create_topic("jobs", partitions=1, priorities=3, transient=True)
            # The first message of a lane makes the lane, on another thread.
            assert await jobs.publish(b"x", priority=2) == "jobs.lane.p2:0:0"
            ids = await asyncio.gather(
                *jobs.publish_many([b"a", {"data": b"b", "durable": False}, {"data": b"c", "priority": 2}])
            )
            assert ids == ["jobs:0:0", "jobs.lane.t1:0:0", "jobs.lane.p2:0:1"]
            assert await jobs.publish_json(1, durable=False) == "jobs.lane.t1:0:1"
            with pytest.raises(InvalidArgument, match="priority 3"):
                await jobs.publish(b"x", priority=3)
            await ps.update_topic("jobs", priorities=4)
            assert await jobs.publish(b"x", priority=3) == "jobs.lane.p3:0:0"
            assert await jobs.lanes() == ["jobs", "jobs.lane.p2", "jobs.lane.p3", "jobs.lane.t1"]
            assert jobs.given_up == 0
            await jobs.flush(PATIENCE)

    asyncio.run(run())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused(ps: PubSub) -> None:
    jobs = ps.create_topic("jobs", partitions=1, priorities=3)
    jobs.publish(b"x", priority=2).result(PATIENCE)
    ps._cluster.publishers["jobs"].forked()
    for priority in (2, 0, None):
        with pytest.raises(FailedPrecondition, match="fork"):
            jobs.publish(b"x", priority=priority)


def test_the_checker_judges_each_lane_by_the_histories(cluster: MemoryCluster, tmp_path: Path) -> None:
    """A partition of a lane has a number of its own there, so no lane's offset is taken for another's."""
    acked = set[bytes]()

    def handle(message: Message) -> None:
        if message.delivery_attempt == 1 and message.data.endswith(b"3"):
            message.nack()
        else:
            acked.add(message.data)
            message.ack()

    with PubSub.in_memory(MemoryBackend(cluster=cluster), history=tmp_path) as ps:
        jobs = ps.create_topic("jobs", partitions=2, priorities=3)
        retry = RetryPolicy(min_backoff=0, max_backoff=0.01)
        sub = ps.create_subscription("billing", jobs, message_ordering=True, retry=retry)
        jobs.publish(b"first", priority=2).result(PATIENCE)
        with sub.pull(handle):
            for number in range(60):
                key, priority = f"k{number % 7}", number % 3
                jobs.publish(b"%d" % number, ordering_key=key, priority=priority)
            jobs.publish_many([{"data": b"last", "priority": 0}]).result(PATIENCE)
            until(lambda: len(acked) == 62)
    report = judge(tmp_path)
    assert report.ok, report.text
    assert report.counts["messages"] == 62


def test_an_adopted_topic_may_get_lanes_and_kafka_keeps_them(ps: PubSub, backend: MemoryBackend) -> None:
    backend.admin.create_topic("jobs", 1, None, {})
    ps.adopt_topic("jobs")
    ps.update_topic("jobs", priorities=3)
    assert ps.topic("jobs").publish(b"x", priority=2).result(PATIENCE) == "jobs.lane.p2:0:0"
    assert ps.delete_topic("jobs")
    assert backend.admin.topic_names() == ["jobs", "jobs.lane.p2"]
