"""Two routers, and the wall clock of one of them is wrong by an hour: set while it runs, or wrong from its start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.services.clock import ServiceClock
from kafka_pubsub.services.delays import DelayRouter
from tests.integration.delays.home import Home, publish
from tests.support import until

HOUR = 3600.0


class WallClock:
    """The machine's wall clock, and by how much it was set."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead

    def __call__(self) -> float:
        return time.time() + self.ahead


class SteppedRouter(DelayRouter):
    """A router with a wall clock of its own."""

    def __init__(self, ps: PubSub, wall: WallClock, tiers: int = 4) -> None:
        super().__init__(ps, tiers=tiers, partitions=2)
        self._clock = ServiceClock(wall)


@pytest.fixture
def ps() -> Iterator[PubSub]:
    # The time of the routers is in the cluster's logs, so each test needs a cluster of its own.
    with LocalKafka() as broker, PubSub(broker.bootstrap) as pubsub:
        yield pubsub


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_wall_clock_that_is_set_while_its_router_runs_moves_no_message(ps: PubSub, step: float) -> None:
    """Not those of its own partition, and not those of the other router's, which it takes over later."""
    topic = ps.create_topic("home", partitions=3)
    wall = WallClock()
    with SteppedRouter(ps, wall) as stepped:
        with DelayRouter(ps, tiers=4, partitions=2) as other:
            until(lambda: stepped.health().partitions == other.health().partitions == 1, "a partition each")
            before = publish(topic, 60)
            wall.ahead = step
            until(lambda: stepped.health().clock_apart, "the router's notice")
            assert stepped.health().clock_apart == pytest.approx(step, abs=1)
            assert not stepped.health().ok
            during = publish(topic, 60)
        until(lambda: stepped.health().partitions == 2, "the takeover")
        after = publish(topic, 60)
        end = time.time() + 60
        Home(ps, topic).receive(before, during, after)
    assert time.time() < end, "nothing waits for the hour"


def test_a_router_whose_clock_lags_from_its_start_holds_messages_up_until_another_takes_over(
    ps: PubSub,
) -> None:
    topic = ps.create_topic("home", partitions=3)
    with DelayRouter(ps, tiers=4, partitions=2) as right:
        right.wait_until_running()
        published = publish(topic, 60, shortest=3.0)
        until(lambda: right.metrics().get("hops", 0) >= 60, "all messages in the tiers")
    with SteppedRouter(ps, WallClock(-HOUR)) as lagging:
        lagging.wait_until_running()
        with DelayRouter(ps) as other:
            until(lambda: other.health().partitions == 1, "a partition for the right one")
            lagging.stop()
            Home(ps, topic).receive(published)


def test_a_router_whose_clock_is_ahead_from_its_start_delivers_early_but_once_and_in_order(
    ps: PubSub,
) -> None:
    """What is never early counts by the clock of the router that runs: the documents say so."""
    topic = ps.create_topic("home", partitions=1)
    with DelayRouter(ps, tiers=12, partitions=2) as right:
        ids = [topic.publish(b"%d" % n, ordering_key="k", delay=1800 - n).result(30) for n in range(20)]
        until(lambda: right.metrics().get("hops", 0) >= len(ids), "all messages in the tiers")
    home = Home(ps, topic)
    with SteppedRouter(ps, WallClock(HOUR), tiers=12):
        until(lambda: home.count() >= len(ids))
    assert [record.value() for record, _ in home.records] == [b"%d" % n for n in reversed(range(20))]


def test_a_right_router_delivers_what_is_due_by_the_time_of_one_that_was_two_hours_ahead(ps: PubSub) -> None:
    """A topic refuses a record that carries a time of more than an hour ahead, so it carries the right one."""
    topic = ps.create_topic("home", partitions=1)
    with SteppedRouter(ps, WallClock(2 * HOUR), tiers=14) as ahead:
        topic.publish(b"refused", ordering_key="k", delay=0.5).result(30)
        until(lambda: ahead.metrics().get("dead") == 1, "a dead letter")
    home = Home(ps, topic)
    with DelayRouter(ps) as right:
        due = datetime.now(UTC) + timedelta(minutes=10)
        topic.publish(b"due", ordering_key="k", deliver_at=due).result(30)
        until(lambda: home.count() == 1)
        assert "dead" not in right.metrics()
    ((record, read_at),) = home.records
    assert record.value() == b"due"
    assert record.timestamp()[1] / 1000 == pytest.approx(read_at, abs=60)
    (letter,) = ps.delay_dead_letters()
    assert "INVALID_TIMESTAMP" in letter.reason
    (why,) = ps.replay_delay_dead_letters().skipped
    assert "it isn't due before" in why
