"""Where a new subscription begins: the end, the oldest message, a time; in each lane too, and after a retention."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_pubsub import InvalidArgument, PubSub, Subscription
from kafka_pubsub.log.memory import MemoryBackend, VirtualClock
from kafka_pubsub.subscribe.admin.starts import check_start

PATIENCE = 20.0
EPOCH = 1_000_000.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(EPOCH)


@pytest.fixture
def backend(clock: VirtualClock) -> MemoryBackend:
    return MemoryBackend(clock)


@pytest.fixture
def ps(backend: MemoryBackend, clock: VirtualClock) -> Iterator[PubSub]:
    """Three messages of one key, ten seconds apart, on one topic."""
    with PubSub.in_memory(backend) as opened:
        topic = opened.create_topic("orders", partitions=2)
        for data in (b"first", b"second", b"third"):
            topic.publish(data, ordering_key="k").result(PATIENCE)
            clock.advance(10)
        yield opened


def received(sub: Subscription, clock: VirtualClock) -> list[bytes]:
    got: list[bytes] = []

    def take(message: Any) -> None:
        got.append(message.data)
        message.ack()

    with sub.pull(take):
        clock.advance(1)
    return got


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("latest", []),
        ("earliest", [b"first", b"second", b"third"]),
        (timedelta(seconds=25), [b"second", b"third"]),
        (timedelta(seconds=20), [b"second", b"third"]),
        (timedelta(days=400_000), [b"first", b"second", b"third"]),
        (timedelta(0), []),
        (datetime.fromtimestamp(EPOCH + 20, UTC), [b"third"]),
        (datetime.fromtimestamp(EPOCH + 25, UTC), []),
    ],
)
def test_it_begins_where_it_is_told_to(
    ps: PubSub, clock: VirtualClock, start: Any, expected: list[bytes]
) -> None:
    sub = ps.create_subscription("billing", "orders", start=start)
    ps.topic("orders").publish(b"later", ordering_key="k").result(PATIENCE)
    assert received(sub, clock) == [*expected, b"later"]


def test_positions_are_stored_by_the_call_itself(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_subscription("billing", "orders", start=timedelta(seconds=25))
    stored = backend.admin.group_offsets("billing", "orders")
    assert sorted(each.offset or 0 for each in stored.values()) == [0, 1]


def test_each_lane_begins_there_too(backend: MemoryBackend, clock: VirtualClock) -> None:
    with PubSub.in_memory(backend) as ps:
        topic = ps.create_topic("jobs", partitions=1, priorities=3)
        for at, priority in enumerate((2, 1, 0)):
            topic.publish(b"old%d" % at, priority=priority).result(PATIENCE)
        clock.advance(10)
        for at, priority in enumerate((2, 1, 0)):
            topic.publish(b"new%d" % at, priority=priority).result(PATIENCE)
        clock.advance(10)
        assert set(received(ps.create_subscription("all", "jobs", start="earliest"), clock)) == {
            *(b"old%d" % at for at in range(3)),
            *(b"new%d" % at for at in range(3)),
        }
        later = ps.create_subscription("new", "jobs", start=timedelta(seconds=15))
        assert set(received(later, clock)) == {b"new%d" % at for at in range(3)}
        assert received(ps.create_subscription("none", "jobs"), clock) == []


def test_a_start_before_what_is_left_says_so_and_begins_there(
    ps: PubSub, backend: MemoryBackend, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    (partition,) = [number for number, end in backend.admin.last_stable_offsets("orders").items() if end]
    backend.cluster.truncate("orders", partition, 1)
    with caplog.at_level(logging.WARNING, "kafka_pubsub.subscriber"):
        sub = ps.create_subscription("billing", "orders", start=timedelta(seconds=40))
        assert f"oldest messages of topic 'orders' that are left, in partitions {partition}" in caplog.text
        caplog.clear()
        ps.create_subscription("later", "orders", start=timedelta(seconds=15))
        ps.create_subscription("oldest", "orders", start="earliest")
        assert caplog.text == ""
    assert received(sub, clock) == [b"second", b"third"]


def test_a_subscription_that_exists_stays_where_it_is(ps: PubSub, clock: VirtualClock) -> None:
    sub = ps.create_subscription("billing", "orders")
    ps.create_subscription("billing", "orders", start="earliest", exist_ok=True)
    assert received(sub, clock) == []


def test_what_it_passes_over_is_counted(ps: PubSub) -> None:
    ps.create_subscription("billing", "orders")
    ps.create_subscription("audit", "orders", start="earliest")
    admin = ps._cluster.subscriptions
    assert (admin.passed_over("billing"), admin.passed_over("audit")) == (3, 0)


@pytest.mark.parametrize(
    ("start", "text"),
    [
        ("oldest", 'start must be "latest", "earliest", a datetime with a time zone'),
        (30, "start must be .* not 30"),
        (None, "start must be .* not None"),
        (datetime(2026, 1, 1), "has no time zone"),  # noqa: DTZ001
        (timedelta(seconds=-1), "is in the future"),
        (datetime(2999, 1, 1, tzinfo=UTC), "is in the future"),
    ],
)
def test_a_wrong_start_is_refused_and_nothing_is_made(ps: PubSub, start: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        ps.create_subscription("billing", "orders", start=start)
    assert ps.list_subscriptions() == []


def test_times_before_1970_are_the_beginning() -> None:
    assert check_start(datetime(1, 1, 2, tzinfo=UTC), 100.0) == 0.0
