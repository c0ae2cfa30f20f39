"""The coordinator: partitions that rest, return or are lost, handlers of old ownerships, credits, commits.

The test is the pool: it takes leases and ends them when it likes. Time is a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from kafka_pubsub.config import FlowControl
from kafka_pubsub.model import UNREAD, Committed, Ending
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, StoreMoves, WriteDeadLetters
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport, MovesAnswered
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.settings import EVERYTHING, Found, LogStart, Rules
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from tests.partition_ids import P
from tests.support import FakeBody
from tests.unit.subscribe.partition.test_retry_partition import Stored
from tests.unit.subscribe.workers.holding import Reported

NOWHERE = CommitBoth(0, "", Commit(0, ""))


class Hands:
    """A pool whose holders do what the test says."""

    run = 10
    spread = False
    inline = None

    def __init__(self) -> None:
        self.reports = Reported()
        self.leases: list[Lease] = []
        self.most = 1_000_000

    def wants(self, free: int) -> int:
        return min(free, self.most)

    def soon(self, free: int) -> tuple[int, int]:
        return self.wants(free), self.run

    def take(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            lease.lease_runner = lease_runner = LeaseRunner(lease, self.reports)
            lease_runner.begin()
            self.leases.append(lease)

    def running(self) -> Iterable[LeaseRunner]:
        return [lease.lease_runner for lease in self.leases if isinstance(lease.lease_runner, LeaseRunner)]

    def close(self, timeout: float | None) -> bool:
        return True

    def on(self, key: bytes | None) -> Lease:
        """The newest lease on a key."""
        return [lease for lease in self.leases if lease.key == key][-1]


class Moving:
    """The side of the retry topic: keeps what is to be relocated."""

    def __init__(self) -> None:
        self.requested: list[tuple[PartitionId, int, StoreMoves]] = []

    def write_moves(self, number: PartitionId, epoch: int, effect: StoreMoves) -> None:
        self.requested.append((number, epoch, effect))

    def write_dead_letters(self, number: PartitionId, epoch: int, effect: WriteDeadLetters) -> None: ...
    def read(self, number: PartitionId, epoch: int, offsets: Sequence[int]) -> None: ...
    def trim(self, number: PartitionId, offset: int) -> None: ...
    def restart(self, number: PartitionId) -> None: ...


class World:
    """A coordinator, its pool, and what the log has stored, by number: both positions, and the retry topic."""

    def __init__(self, **flow: int) -> None:
        self.worker_pool, self.moving = Hands(), Moving()
        rules = Rules(ordered=True, ack_deadline=10, max_extension=0)
        self.coordinator = Coordinator(
            rules, FlowControl(**flow), self.worker_pool, 7, lambda: 0.5, self.moving
        )
        self.stored: dict[int, CommitBoth] = {}
        self.retry: dict[PartitionId, list[Stored]] = {}

    def assign(self, *numbers: int, now: float = 0.0) -> Mapping[int, int]:
        """The partitions are ours, whose retry partitions are empty; the log takes their first commits."""

        def begin(number: PartitionId, stored: Committed) -> Found:
            found = ack_map.decode(stored.metadata, stored.offset or 0)
            known = found.runs if found else ()
            return Found("t", "id", LogStart(stored.offset or 0, known, end=EVERYTHING))

        stored = {number: self.stored.get(number, NOWHERE) for number in numbers}
        main = {P[number]: Committed(each.offset, each.metadata) for number, each in stored.items()}
        beside = {P[number]: Committed(*each.retry) for number, each in stored.items()}
        positions = self.coordinator.assign(main, begin, now, beside)
        ids = list(main)
        for number in ids:
            self.coordinator.caught_up(number, UNREAD, now)
        first = self.coordinator.first_commits(ids, now)
        self._store(first)
        self.coordinator.answered(first, dict.fromkeys(first, True), now)
        self.coordinator.partitions.check()
        return {number.partition: at for number, at in positions.items()}

    def _store(self, commits: Mapping[PartitionId, CommitBoth]) -> None:
        self.stored.update({number.partition: commit for number, commit in commits.items()})

    def move(self, now: float) -> None:
        """The log takes what was sent; what waits to be relocated is, and comes back."""
        sent = self.coordinator.take_commits()
        self.coordinator.answered(sent, dict.fromkeys(sent, True), now)
        self.coordinator.tick(now)
        moves, self.moving.requested = self.moving.requested, []
        for number, epoch, effect in moves:
            log = self.retry.setdefault(number, [])
            news = [
                Stored(len(log) + at, each.record.key(), each.headers)
                for at, each in enumerate(effect.records)
            ]
            log += news
            self.coordinator.move_answered(number, epoch, MovesAnswered(Ending.STORED), len(news), now)
            self.coordinator.retry_fetched({number: news}, now)

    def fetch(self, number: int, *keys: bytes | None, first: int = 0) -> None:
        records = [FakeBody(offset=first + at, key=key) for at, key in enumerate(keys)]
        self.coordinator.fetched({P[number]: records}, 0.0)

    def deliver(self, now: float = 0.0) -> list[Lease]:
        before = len(self.worker_pool.leases)
        self.coordinator.deliver(now)
        self.coordinator.partitions.check()
        return self.worker_pool.leases[before:]

    def end(self, lease: Lease, outcome: LeaseOutcome = LeaseOutcome.FINISHED, now: float = 0.0) -> None:
        done = len(lease.records) if outcome is LeaseOutcome.FINISHED else 0
        self.coordinator.released([LeaseReport(lease, done, outcome)], now)
        self.coordinator.partitions.check()

    def revoke(self, *numbers: int, accepted: bool = True) -> dict[PartitionId, CommitBoth]:
        last = self.coordinator.revoke([P[number] for number in numbers], 0.0)
        if accepted:
            self._store(last)
        self.coordinator.answered(last, dict.fromkeys(last, accepted), 0.0)
        return last


@pytest.fixture
def world() -> World:
    world = World()
    world.assign(0)
    return world


# Resting and returning


def test_a_resting_partition_begins_nothing_but_takes_reports(world: World) -> None:
    world.fetch(0, b"a", b"a", b"b")
    first, _ = world.deliver()
    lease_runner = first.lease_runner
    assert isinstance(lease_runner, LeaseRunner)
    world.revoke(0)
    assert lease_runner.stopped
    assert not lease_runner.withdrawn
    world.fetch(0, b"c", first=3)
    assert world.deliver() == []
    world.end(first)
    assert world.coordinator.partitions.finished() == 2


def test_a_revoked_partition_has_one_final_commit_and_no_commit_after_it(world: World) -> None:
    world.fetch(0, b"a")
    world.end(world.deliver()[0])
    world.coordinator.tick(1.0)
    posted = world.coordinator.take_commits()
    assert list(posted) == [P[0]]
    assert world.coordinator.current(posted) == posted
    last = world.revoke(0)
    assert last[P[0]].offset == 1
    assert world.coordinator.current(posted) == {}
    world.coordinator.tick(2.0)
    assert world.coordinator.take_commits() == {}
    world.assign(0)
    assert world.coordinator.current(posted) == {}, (
        "older than the final commit, although the partition returned"
    )


def test_the_answer_to_a_commit_is_none_to_the_final_commit_that_took_its_place(world: World) -> None:
    """Or its acks would count as stored while the final commit, which holds more, isn't answered yet."""
    world.fetch(0, b"a", b"b")
    first, second = world.deliver()
    world.end(first)
    world.coordinator.tick(1.0)
    sent = world.coordinator.take_commits()
    world.end(second)
    last = world.coordinator.revoke([P[0]], 1.0)
    world.coordinator.answered(sent, {P[0]: True}, 1.0)
    assert world.coordinator.partitions.resting[P[0]]._commits.in_flight is last[P[0]]
    world.coordinator.answered(last, {P[0]: True}, 1.0)
    assert world.coordinator.partitions.resting[P[0]]._commits.stored is last[P[0]]


def test_a_partition_that_said_everything_says_that_it_was_given_up_in_good_order(world: World) -> None:
    world.fetch(0, b"a")
    world.end(world.deliver()[0])
    world.coordinator.tick(1.0)
    sent = world.coordinator.take_commits()
    world.coordinator.answered(sent, dict.fromkeys(sent, True), 1.0)
    last = world.revoke(0)[P[0]]
    assert last.offset == sent[P[0]].offset == 1
    said = [ack_map.decode(each.metadata, 1) for each in (sent[P[0]], last)]
    assert [each is not None and each.clean for each in said] == [False, True]


def test_what_was_lost_says_nothing_and_counts_nothing(world: World) -> None:
    world.fetch(0, b"a", b"b")
    leases = world.deliver()
    lease_runner = leases[1].lease_runner
    assert isinstance(lease_runner, LeaseRunner)
    world.end(leases[0])
    world.coordinator.tick(1.0)
    world.coordinator.lose([P[0]], 1.0)
    assert world.coordinator.take_commits() == {}
    assert lease_runner.withdrawn
    assert world.coordinator.in_flight() == 0
    world.end(leases[1])
    assert world.coordinator.partitions.finished() == 1
    assert world.coordinator.partitions.committed_positions() == {P[0]: 0}


def test_revoking_and_losing_what_is_not_ours_is_nothing(world: World) -> None:
    assert world.coordinator.revoke([P[5]], 0.0) == {}
    world.coordinator.lose([P[5]], 0.0)
    world.coordinator.fetched({P[5]: [FakeBody()]}, 0.0)
    world.coordinator.answered({P[5]: CommitBoth(1, "", Commit(0, ""))}, {P[5]: True}, 0.0)
    assert world.coordinator.counts.received == 0


# Handlers of old ownerships
