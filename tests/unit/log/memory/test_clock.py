"""A client in memory whose time a test moves: delays, backoffs and deadlines come when the clock is advanced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from kafka_pubsub import (
    DeadlineExceeded,
    DelayRouter,
    InvalidArgument,
    Message,
    PubSub,
    RetryPolicy,
    Subscription,
    Topic,
    aio,
)
from kafka_pubsub.log.memory import MemoryBackend, VirtualClock

#: Real seconds.
PATIENCE = 20.0
TEN = RetryPolicy(min_backoff=10, max_backoff=10)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ps(clock: VirtualClock) -> Iterator[PubSub]:
    with PubSub.in_memory(clock=clock) as pubsub:
        yield pubsub


@pytest.fixture
def topic(ps: PubSub) -> Topic:
    return ps.create_topic("orders")


class Calls:
    """A callback that notes each call, and nacks the messages that say so for as many attempts."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock, self.start = clock, clock.now()
        self.made: list[tuple[bytes, int]] = []
        self.at: list[float] = []

    def __call__(self, message: Message) -> None:
        self.made.append((message.data, message.delivery_attempt))
        self.at.append(self.clock.now() - self.start)
        if message.data == b"nacked":
            message.nack()
        elif message.data != b"kept":
            message.ack()


@pytest.fixture
def calls(clock: VirtualClock) -> Calls:
    return Calls(clock)


def test_a_delay_passes_when_the_clock_is_advanced(
    ps: PubSub, topic: Topic, clock: VirtualClock, calls: Calls
) -> None:
    with ps.create_subscription("billing", topic).pull(calls):
        topic.publish(b"later", delay=30).result(PATIENCE)
        topic.publish(b"much later", deliver_at=datetime.fromtimestamp(clock.now() + 7200, UTC))
        topic.publish_many(
            [{"data": b"between", "deliver_at": datetime.fromtimestamp(clock.now() + 60, UTC)}, b"now"]
        ).result(PATIENCE)
        clock.advance(0)
        assert calls.made == [(b"now", 1)]
        clock.advance(29)
        assert calls.made == [(b"now", 1)]
        clock.advance(1)
        assert calls.made == [(b"now", 1), (b"later", 1)]
        clock.advance(timedelta(hours=2))
        assert calls.made[2:] == [(b"between", 1), (b"much later", 1)]
        assert calls.at[1:] == pytest.approx([30, 60, 7200], abs=1)


def test_a_multicast_without_a_sequencer_fails_in_time(clock: VirtualClock) -> None:
    with PubSub.in_memory(clock=clock, services=False) as ps:
        ps.create_topic("stock", causal=True)
        future = ps.publish_multi(["stock"], b"")
        clock.advance(29)
        assert not future.done()
        clock.advance(1)
        with pytest.raises(DeadlineExceeded, match="after 30 s"):
            future.result(PATIENCE)


def test_a_multicast_has_its_place_when_advance_returns(
    ps: PubSub, clock: VirtualClock, calls: Calls
) -> None:
    for name in ("stock", "audit"):
        ps.create_topic(name, causal=True)
    with ps.create_subscription("billing", "audit").pull(calls):
        future = ps.publish_multi(["stock", "audit"], b"to both")
        clock.advance(0)
        assert future.done()
        assert calls.made == [(b"to both", 1)]


def test_a_router_that_the_program_starts_goes_by_the_clock(clock: VirtualClock, calls: Calls) -> None:
    with PubSub.in_memory(clock=clock, services=False) as ps, DelayRouter(ps) as router:
        topic = ps.create_topic("orders")
        with ps.create_subscription("billing", topic).pull(calls):
            topic.publish(b"later", delay=3600).result(PATIENCE)
            clock.advance(3600)
            assert calls.made == [(b"later", 1)]
            assert router.metrics()["home"] == 1


def test_processes_of_one_cluster_share_the_clock(clock: VirtualClock, calls: Calls) -> None:
    backend = MemoryBackend(clock)
    other = MemoryBackend(cluster=backend.cluster)
    with PubSub.in_memory(backend) as ps, PubSub.in_memory(other) as elsewhere:
        topic = ps.create_topic("orders")
        with elsewhere.create_subscription("billing", "orders", retry=TEN).pull(calls):
            topic.publish(b"nacked", delay=30).result(PATIENCE)
            clock.advance(45)
            assert calls.made == [(b"nacked", 1), (b"nacked", 2)]


def test_low_priorities_age(ps: PubSub, clock: VirtualClock) -> None:
    """While an hour passes, no session ends, and messages of all lanes are delivered."""
    topic = ps.create_topic("jobs", priorities=3)
    sub = ps.create_subscription("workers", topic)
    got: list[bytes] = []

    def handle(message: Message) -> None:
        got.append(message.data)
        message.ack()

    with sub.pull(handle) as stream:
        for priority in (0, 1, 2):
            topic.publish(b"%d" % priority, priority=priority).result(PATIENCE)
            topic.publish(b"later %d" % priority, priority=priority, delay=3600).result(PATIENCE)
        clock.advance(0)
        assert sorted(got) == [b"0", b"1", b"2"]
        clock.advance(3600)
        assert sorted(got[3:]) == [b"later 0", b"later 1", b"later 2"]
        assert not stream.done()


def test_a_coroutine_advances_on_a_thread(clock: VirtualClock) -> None:
    got: list[bytes] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        got.append(message.data)
        message.ack()

    async def play() -> None:
        async with asyncio.timeout(PATIENCE), aio.PubSub.in_memory(clock=clock) as ps:
            topic = await ps.create_topic("orders")
            sub = await ps.create_subscription("billing", "orders")
            async with await sub.pull(handle):
                await topic.publish(b"later", delay=30)
                await asyncio.to_thread(clock.advance, 30)
                assert got == [b"later"]
                published = topic.publish(b"now")
                with pytest.raises(DeadlineExceeded, match=r"await asyncio.to_thread\(clock.advance"):
                    clock.advance(30, timeout=0.2)  # the callback needs this loop
                await published

    asyncio.run(play())


def test_a_clock_without_a_client_just_moves(clock: VirtualClock) -> None:
    before = clock.now()
    clock.advance(2.5)
    assert clock.now() == before + 2.5
    with pytest.raises(ValueError, match="time doesn't go back"):
        clock.advance(-1)


def test_a_backend_has_its_own_clock(clock: VirtualClock) -> None:
    with pytest.raises(InvalidArgument, match="clock: a backend has its cluster's"):
        PubSub.in_memory(MemoryBackend(), clock=clock)


def test_the_clock_stands_still_while_nothing_is_due(
    ps: PubSub, topic: Topic, clock: VirtualClock, calls: Calls
) -> None:
    sub: Subscription = ps.create_subscription("billing", topic, ack_deadline=10)
    with sub.pull(calls):
        topic.publish(b"kept").result(PATIENCE)
        clock.advance(5)
        before = clock.now()
        time.sleep(0.4)
        assert clock.now() == before
