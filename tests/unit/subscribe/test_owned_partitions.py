"""Partitions that are revoked, rest and return, and callbacks that outlive an ownership."""

from __future__ import annotations

import pytest

from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth
from kafka_pubsub.subscribe.partition.events import LeaseOutcome
from kafka_pubsub.subscribe.partition.leases import LeaseState, Settlement
from tests.partition_ids import P
from tests.unit.subscribe.test_coordinator import World


@pytest.fixture
def world() -> World:
    world = World()
    world.assign(0)
    return world


def test_a_partition_that_returns_goes_on_where_it_was(world: World) -> None:
    world.fetch(0, b"a", b"b")
    lease, other = world.deliver()
    world.end(lease)
    epoch = world.coordinator.partitions.owned[P[0]].epoch
    world.revoke(0)
    assert not world.coordinator.partitions.owned
    world.end(other)  # acked while it rests
    assert world.assign(0) == {0: 2}
    assert world.coordinator.partitions.owned[P[0]].epoch == epoch
    assert world.coordinator.partitions.finished() == 2
    assert world.coordinator.counts.stale == 0
    assert world.stored[0].offset == 2, "the ack that came while it rested is committed"


def test_a_partition_to_which_somebody_wrote_starts_anew(world: World) -> None:
    world.fetch(0, b"a", b"b")
    (lease, _) = world.deliver()
    epoch = world.coordinator.partitions.owned[P[0]].epoch
    world.revoke(0)
    world.stored[0] = CommitBoth(1, ack_map.encode(ack_map.AckMap(99, ()), 1), Commit(0, ""))
    assert world.assign(0) == {0: 1}
    assert world.coordinator.partitions.owned[P[0]].epoch > epoch
    assert lease.state is LeaseState.OVER
    world.end(lease)
    assert world.coordinator.counts.stale == 1
    assert world.coordinator.partitions.finished() == 0


def test_the_same_offset_with_another_map_is_not_ours(world: World) -> None:
    world.fetch(0, b"a")
    (lease,) = world.deliver()
    world.end(lease)
    world.revoke(0)
    world.stored[0] = CommitBoth(1, ack_map.encode(ack_map.AckMap(99, ()), 1), Commit(0, ""))
    epoch = world.coordinator.partitions.resting[P[0]].epoch
    world.assign(0)
    assert world.coordinator.partitions.owned[P[0]].epoch > epoch


def test_a_final_commit_that_was_refused_starts_anew_from_what_the_log_has(world: World) -> None:
    world.fetch(0, b"a", b"b")
    leases = world.deliver()
    world.end(leases[0])
    last = world.revoke(0, accepted=False)
    assert last[P[0]].offset == 1
    world.stored[0] = last[P[0]]  # refused, but the log took it: it can't be known
    assert world.assign(0) == {0: 1}
    world.fetch(0, b"b", first=1)
    assert world.deliver() == [], "the old handler of b still runs"


def test_what_rests_and_did_not_return_is_over(world: World) -> None:
    world.assign(0, 1)
    world.fetch(0, b"a")
    (lease,) = world.deliver()
    world.revoke(0, 1)
    world.assign(1)
    assert lease.state is LeaseState.OVER
    assert not world.coordinator.partitions.resting
    assert world.coordinator.in_flight() == 0


@pytest.mark.parametrize("outcome", [LeaseOutcome.FINISHED, LeaseOutcome.NACKED, LeaseOutcome.UNTOUCHED])
def test_a_key_waits_for_its_old_callback_and_no_other_key_does(world: World, outcome: LeaseOutcome) -> None:
    world.fetch(0, b"a", b"b")
    old = world.deliver()[0]
    world.coordinator.lose([P[0]], 0.0)
    world.assign(0)
    world.fetch(0, b"a", b"b", b"c")
    world.end(world.worker_pool.on(b"b"), LeaseOutcome.NACKED)
    assert [lease.key for lease in world.deliver()] == [b"b", b"c"]
    assert world.coordinator.partitions.lingering == {old}
    world.end(old, outcome)
    assert [lease.key for lease in world.deliver()] == [b"a"]
    assert not world.coordinator.partitions.lingering


def test_an_old_callback_holds_its_key_back_over_several_ownerships(world: World) -> None:
    world.fetch(0, b"a")
    (old,) = world.deliver()
    for _ in range(3):
        world.coordinator.lose([P[0]], 0.0)
        world.assign(0)
        world.fetch(0, b"a")
        assert world.deliver() == []
    world.end(old)
    (lease,) = world.deliver()
    assert lease.epoch == 4


def test_an_old_callback_that_ends_between_two_ownerships_holds_nothing_back(world: World) -> None:
    world.fetch(0, b"a")
    (old,) = world.deliver()
    world.coordinator.lose([P[0]], 0.0)
    world.end(old)
    world.assign(0)
    world.fetch(0, b"a")
    assert [lease.key for lease in world.deliver()] == [b"a"]


def test_a_message_that_its_user_keeps_has_no_callback_and_holds_nothing_back(world: World) -> None:
    world.fetch(0, b"a")
    (old,) = world.deliver()
    world.end(old, LeaseOutcome.KEPT)
    world.coordinator.lose([P[0]], 0.0)
    world.assign(0)
    world.fetch(0, b"a")
    (lease,) = world.deliver()
    world.coordinator.settled([Settlement(old, 0, acked=True)], 0.0)
    assert world.coordinator.counts.stale == 1
    assert lease.state is LeaseState.RUNNING


def test_an_old_callback_whose_lease_had_expired_holds_its_key_back_too(world: World) -> None:
    world.fetch(0, b"a")
    (old,) = world.deliver()
    world.coordinator.tick(0.0)
    world.coordinator.tick(11.0)
    assert old.state is LeaseState.EXPIRED
    world.coordinator.lose([P[0]], 11.0)
    world.assign(0)
    world.fetch(0, b"a")
    assert world.deliver() == []
    world.end(old)
    assert [lease.key for lease in world.deliver()] == [b"a"]
