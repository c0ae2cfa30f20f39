"""A router works days after the last router; the time of a log is ahead because a broker's clock was."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.memory.clock import SystemClock
from tests.support import until
from tests.unit.delays.test_role import bodies, stored

DAY = 86_400.0
#: Messages, and how many come home in a second at most.
COUNT, RATE = 60, 40


class SteppedClock(SystemClock):
    """The brokers' clock, and by how much it was set."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def backend(clock: SteppedClock) -> MemoryBackend:
    return MemoryBackend(clock=clock)


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend, services=False) as pubsub:
        yield pubsub


def test_what_is_overdue_for_days_comes_in_due_order_at_a_bounded_rate(
    ps: PubSub, backend: MemoryBackend, clock: SteppedClock
) -> None:
    """Two messages have each delay, of a minute to two days: they wait in all tiers."""
    topic = ps.create_topic("orders", partitions=1)
    delays = [60.0 + n // 2 * 5_600 for n in range(COUNT)]
    random.Random(1).shuffle(delays)
    with DelayRouter(ps, tiers=18, partitions=1) as router:
        for number, delay in enumerate(delays):
            topic.publish(b"%02d" % number, ordering_key="k", delay=delay).result(10)
        until(lambda: router.metrics().get("hops", 0) >= COUNT, "all messages in the tiers")
    clock.ahead = 3 * DAY
    with DelayRouter(ps, max_rate=RATE) as later:
        later.wait_until_running()
        began = time.monotonic()
        until(lambda: len(bodies(backend)) == COUNT)
        took = time.monotonic() - began
    # A tenth of a second's worth may go at once.
    assert took > (COUNT - RATE / 10) / RATE * 0.9
    found = [int(body or b"") for body in bodies(backend)]
    assert found == sorted(range(COUNT), key=lambda number: (delays[number], number))


def test_a_delay_counts_from_the_moment_of_storing_whether_a_router_runs_or_not(
    ps: PubSub, backend: MemoryBackend, clock: SteppedClock
) -> None:
    topic = ps.create_topic("orders", partitions=1)
    topic.publish(b"later", delay=2 * DAY).result(10)
    topic.publish(b"first", delay=600).result(10)
    clock.ahead = 605.0
    began = time.monotonic()
    with DelayRouter(ps) as router:
        until(lambda: bodies(backend) == [b"first"])
        assert time.monotonic() - began < 5
        clock.ahead = 2 * DAY
        topic.publish(b"a record tells the time as a tick does", delay=DAY).result(10)
        until(lambda: bodies(backend) == [b"first", b"later"])
        assert router.health().ok


def test_a_clock_that_is_set_forward_is_noticed_without_any_message(
    ps: PubSub, backend: MemoryBackend, clock: SteppedClock
) -> None:
    topic = ps.create_topic("orders", partitions=1)
    topic.publish(b"x", delay=600).result(10)
    with DelayRouter(ps) as router:
        until(lambda: router.metrics().get("hops"))
        clock.ahead = 600.0
        until(lambda: bodies(backend) == [b"x"], patience=15)


def test_while_a_log_is_ahead_of_its_broker_health_says_so_and_home_gets_the_right_time(
    ps: PubSub, backend: MemoryBackend, clock: SteppedClock
) -> None:
    topic = ps.create_topic("orders", partitions=1)
    clock.ahead = DAY
    with DelayRouter(ps) as router:
        topic.publish(b"0", ordering_key="k", delay=0.1).result(10)
        until(lambda: router.metrics().get("home") == 1)
        clock.ahead = 0.0
        due = datetime.now(UTC) + timedelta(hours=5)
        topic.publish(b"1", ordering_key="k", deliver_at=due).result(10)
        until(lambda: len(bodies(backend)) == 2)
        until(lambda: DAY - 60 < router.health().log_ahead <= DAY)
        assert not router.health().ok
    wrong, right = (record.timestamp()[1] / 1000 - time.time() for record in stored(backend, "orders"))
    assert wrong > DAY / 2
    assert abs(right) < DAY / 2


def test_ingest_without_stamps_is_refused(ps: PubSub, backend: MemoryBackend) -> None:
    with DelayRouter(ps, tiers=2) as router:
        router.wait_until_running()
    backend.admin.update_topic(INGEST, {"message.timestamp.type": "CreateTime"})
    with (
        DelayRouter(ps) as router,
        pytest.raises(
            FailedPrecondition, match=r"message.timestamp.type=CreateTime and must have LogAppendTime"
        ),
    ):
        router.wait_until_running(timeout=0.2)


def test_what_came_in_without_stamps_is_delayed_from_the_first_stamp_behind_it(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("orders", partitions=1)
    ps._cluster.delay_topics.make(4, 1)
    backend.admin.update_topic(INGEST, {"message.timestamp.type": "CreateTime"})
    topic.publish(b"x", ordering_key="k", delay=0.3).result(10)
    topic.publish(b"y", ordering_key="k", delay=0.3).result(10)
    assert [each.due for each in ps.delays.waiting()] == [None, None]
    backend.admin.update_topic(INGEST, {"message.timestamp.type": "LogAppendTime"})
    began = time.time()
    with DelayRouter(ps):
        until(lambda: bodies(backend) == [b"x", b"y"])
    assert time.time() - began >= 0.3


def test_a_setting_that_is_taken_back_while_a_router_runs_stops_it(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("orders", partitions=1)
    with DelayRouter(ps, tiers=12, partitions=1) as router:
        router.wait_until_running()
        backend.admin.update_topic(INGEST, {"message.timestamp.type": "CreateTime"})
        topic.publish(b"x", delay=600).result(10)
        until(lambda: "must have LogAppendTime" in router.health().error)
        backend.admin.update_topic(INGEST, {"message.timestamp.type": "LogAppendTime"})
        until(lambda: router.health().ok)
    assert len(list(ps.delays.waiting())) == 1


def test_a_router_with_fewer_tiers_than_were_read_refuses(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders", partitions=1)
    with DelayRouter(ps, tiers=4, partitions=1) as router:
        topic.publish(b"x", delay=0.1).result(10)
        until(lambda: router.metrics().get("home") == 1)
    real = type(backend.admin).topic_names
    hidden = lambda self: [name for name in real(self) if name != "_kafka_pubsub.delay.03"]  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(backend.admin), "topic_names", hidden)
        with DelayRouter(ps) as router:
            until(lambda: "with 4 tiers, and this one has found 3" in router.health().error)
    with DelayRouter(ps) as router:
        until(lambda: router.health().ok)


def test_a_message_longer_than_the_tiers_waits_until_there_are_more(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("orders", partitions=1)
    with DelayRouter(ps, tiers=2, partitions=1) as router:
        router.wait_until_running()
        with PubSub.in_memory(backend, services=False) as other:
            other._cluster.delay_topics.make(12, 1)
            other.topic("orders").publish(b"long", delay=2000).result(10)
        topic.publish(b"short", delay=0.1).result(10)
        until(lambda: bodies(backend) == [b"short"])
        (waiting,) = ps.delays.waiting()
        assert waiting.tier is not None
    assert "dead" not in router.metrics()
