"""What a coordinator hands out, when leases end by themselves, and what it holds."""

from __future__ import annotations

import pytest

from kafka_pubsub.subscribe.fetch_window import WINDOW
from kafka_pubsub.subscribe.partition.events import LeaseOutcome
from kafka_pubsub.subscribe.partition.leases import LeaseState, Settlement
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from tests.partition_ids import P
from tests.unit.subscribe.test_coordinator import World


@pytest.fixture
def world() -> World:
    world = World()
    world.assign(0)
    return world


# Credits


def test_no_more_is_started_than_may_be() -> None:
    world = World(max_messages=3)
    world.assign(0, 1)
    for number in (0, 1):
        world.fetch(number, *(b"%d-%d" % (number, key) for key in range(5)))
    leases = world.deliver()
    assert len(leases) == world.coordinator.in_flight() == 3
    assert {lease.partition for lease in leases} == {P[0], P[1]}, "both have their share"
    assert world.deliver() == []
    world.end(leases[0])
    assert len(world.deliver()) == 1


def test_a_kept_message_costs_a_credit_until_its_report() -> None:
    world = World(max_messages=1)
    world.assign(0)
    world.fetch(0, b"a", b"b")
    (lease,) = world.deliver()
    world.end(lease, LeaseOutcome.KEPT)
    assert world.deliver() == []
    world.coordinator.settled([Settlement(lease, 0, acked=True)], 0.0)
    assert [lease.key for lease in world.deliver()] == [b"b"]


def test_a_message_in_backoff_costs_no_credit() -> None:
    world = World(max_messages=1)
    world.assign(0)
    world.fetch(0, b"a", b"b")
    (lease,) = world.deliver()
    world.end(lease, LeaseOutcome.NACKED)
    (other,) = world.deliver()
    assert other.key == b"b"
    world.end(other)
    world.move(0.5)
    world.coordinator.tick(1.0)
    (again,) = world.deliver(1.0)
    assert (again.key, again.attempt) == (b"a", 2)
    assert world.coordinator.counts.redelivered == 1


def test_credits_are_right_after_every_change_of_ownership() -> None:
    world = World(max_messages=4)
    world.assign(0, 1)
    for number in (0, 1):
        world.fetch(number, b"a%d" % number, b"b%d" % number)
    assert len(world.deliver()) == 4
    world.coordinator.lose([P[1]], 0.0)
    assert world.coordinator.in_flight() == 2
    world.revoke(0)
    assert world.coordinator.in_flight() == 2, "it may return"
    world.assign(0)
    assert world.coordinator.in_flight() == 2
    world.assign(1)
    world.fetch(1, b"c1", b"d1", b"e1")
    assert len(world.deliver()) == 2


def test_a_worker_pool_that_wants_less_gets_less(world: World) -> None:
    world.worker_pool.most = 1
    world.fetch(0, b"a", b"b")
    assert len(world.deliver()) == 1


def test_a_closing_stream_begins_nothing_and_stops_its_lease_runners(world: World) -> None:
    world.fetch(0, b"a", b"b")
    (lease, _) = world.deliver()
    lease_runner = lease.lease_runner
    world.coordinator.stop()
    assert isinstance(lease_runner, LeaseRunner)
    assert lease_runner.stopped
    world.fetch(0, b"c", first=2)
    assert world.deliver() == []
    world.end(lease)
    assert world.coordinator.partitions.finished() == 1


# Time


def test_a_running_callback_has_its_deadline_from_when_it_was_seen_to_run(world: World) -> None:
    world.fetch(0, b"a")
    (lease,) = world.deliver(5.0)
    world.coordinator.tick(5.0)
    assert lease.deadline == 15.0
    wake = world.coordinator.wakeup_at()
    assert wake is not None
    assert wake <= 15.0
    states = []
    for now in (14.9, 15.0):
        world.coordinator.tick(now)
        states.append(lease.state)
    assert states == [LeaseState.RUNNING, LeaseState.EXPIRED]
    assert world.deliver(15.0) == [], "its callback still runs"
    world.end(lease, LeaseOutcome.NACKED, now=15.0)
    world.move(15.5)
    world.coordinator.tick(16.0)
    (again,) = world.deliver(16.0)
    assert again.attempt == 2


def test_an_extension_moves_the_deadline_and_a_late_one_is_counted(world: World) -> None:
    world.fetch(0, b"a")
    (lease,) = world.deliver()
    world.coordinator.extended(lease, 0, 100.0, 0.0)
    world.coordinator.tick(50.0)
    assert lease.state is LeaseState.RUNNING
    world.end(lease, now=50.0)
    world.coordinator.extended(lease, 0, 100.0, 50.0)
    assert world.coordinator.counts.stale == 1


def test_a_resting_partition_expires_too(world: World) -> None:
    world.fetch(0, b"a")
    (lease,) = world.deliver()
    world.end(lease, LeaseOutcome.KEPT)
    world.revoke(0)
    world.coordinator.tick(11.0)
    assert lease.state is LeaseState.OVER


# Room


def test_what_is_held_is_what_is_not_finished(world: World) -> None:
    world.fetch(0, b"a", b"b")
    lease, other = world.deliver()
    before = world.coordinator.partitions.held()[P[0]]
    assert before.records == 2
    world.end(lease)
    after = world.coordinator.partitions.held()[P[0]]
    assert (after.records, after.bytes * 2) == (1, before.bytes)
    world.end(other)
    assert world.coordinator.partitions.held()[P[0]][:2] == (0, 0)


def test_a_partition_that_comes_anew_flows_whatever_it_was_before(world: World) -> None:
    """The log's client fetches from all that it is assigned: to think otherwise would let it fill for ever."""
    world.fetch(0, *(b"k%d" % at for at in range(2 * WINDOW)))
    coordinator = world.coordinator
    assert coordinator.partitions.flow(waited=True).pause == [P[0]]
    world.revoke(0)
    world.assign(0)
    assert not coordinator.partitions.gate.paused
