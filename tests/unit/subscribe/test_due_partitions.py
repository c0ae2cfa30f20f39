"""How many partitions a sweep asks and ticks: those that something happened to, however many there are."""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_pubsub.subscribe.partition.events import Event, Tick
from kafka_pubsub.subscribe.partition.partition import Partition
from tests.partition_ids import P
from tests.unit.subscribe.test_coordinator import World

MANY = 1000


class Watched:
    """A stream with many partitions, and a count of what each sweep does with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.world.assign(*range(MANY))
        self.now = 0.0
        self.asked: Counter[int] = Counter()
        self.ticked: Counter[int] = Counter()
        handle, wakeup_at = Partition.handle, Partition.wakeup_at

        def counted_handle(partition: Partition, event: Event, now: float) -> object:
            self.ticked[partition.number.partition] += isinstance(event, Tick)
            return handle(partition, event, now)

        def counted_wakeup_at(partition: Partition) -> float | None:
            self.asked[partition.number.partition] += 1
            return wakeup_at(partition)

        monkeypatch.setattr(Partition, "handle", counted_handle)
        monkeypatch.setattr(Partition, "wakeup_at", counted_wakeup_at)
        self.sweep()
        self.sweep()

    def sweep(self, wall: float | None = None) -> None:
        """Does what the runner does in one sweep; counts anew."""
        self.asked.clear()
        self.ticked.clear()
        self.now += 1.0
        coordinator = self.world.coordinator
        coordinator.tick(self.now, wall)
        coordinator.deliver(self.now)
        coordinator.partitions.room()
        coordinator.partitions.flow(waited=False)
        coordinator.wakeup_at()
        assert not coordinator.partitions.attention.hurried
        assert not coordinator.partitions.attention.careful
        commits = coordinator.take_commits()
        coordinator.answered(commits, dict.fromkeys(commits, True), self.now)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_an_idle_sweep_asks_and_ticks_no_partition(watched: Watched) -> None:
    watched.sweep()
    assert not +watched.ticked
    assert not +watched.asked


def test_a_sweep_ticks_only_the_partition_that_something_happened_to(watched: Watched) -> None:
    watched.world.fetch(7, b"a")
    watched.sweep()
    assert +watched.ticked == Counter([7])
    assert watched.asked == Counter([7]), "once, after its tick and its delivery"
    (lease,) = watched.world.worker_pool.leases
    watched.sweep()
    assert +watched.ticked == Counter([7]), "its handler runs"
    watched.world.end(lease, now=watched.now)
    watched.sweep()
    watched.sweep()
    watched.sweep()
    assert not +watched.ticked, "its commit was answered"


def test_a_partition_that_is_due_gets_its_tick(watched: Watched) -> None:
    watched.world.fetch(7, b"a")
    watched.sweep()
    watched.world.end(watched.world.worker_pool.leases[0], now=watched.now)
    assert watched.world.coordinator.wakeup_at() is not None
    watched.sweep()
    assert watched.world.coordinator.partitions.owned[P[7]]._commits.stored.offset == 1


def test_a_wall_clock_that_was_set_is_reported_to_all(watched: Watched) -> None:
    watched.sweep(wall=100.0)
    watched.sweep(wall=100.0)
    assert not +watched.ticked
    watched.sweep(wall=90.0)
    assert len(watched.ticked) == MANY


def test_a_partition_that_is_about_to_go_gets_no_tick_and_wakes_none(watched: Watched) -> None:
    world = watched.world
    world.fetch(7, b"a")
    watched.sweep()
    world.end(world.worker_pool.leases[0], now=watched.now)
    assert world.coordinator.wakeup_at() is not None
    world.coordinator.partitions.hold_still([P[7]])
    assert world.coordinator.wakeup_at() is None
    watched.sweep()
    assert not +watched.ticked


def test_a_partition_that_went_is_forgotten(watched: Watched) -> None:
    world = watched.world
    world.fetch(7, b"a")
    world.coordinator.lose([P[7]], watched.now)
    watched.sweep()
    assert world.coordinator.partitions.attention.deliverable() == []
    assert not world.coordinator.partitions.attention.held
