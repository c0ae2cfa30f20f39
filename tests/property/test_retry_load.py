"""I6: a single key that fails for ten minutes under load, on the partition itself: others flow, memory stays flat."""

from __future__ import annotations

import pytest

from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.record import RetryRecord
from kafka_pubsub.subscribe.partition.effects import (
    Commit,
    CommitBoth,
    Deliver,
    Effect,
    ReadBodies,
    StoreMoves,
)
from kafka_pubsub.subscribe.partition.events import (
    Bodies,
    CommitAnswered,
    Demand,
    Event,
    Fetched,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    MovesAnswered,
    RetryCaughtUp,
    RetryFetched,
    Tick,
)
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.settings import (
    RECORD_OVERHEAD,
    Backoff,
    Found,
    Policy,
    Rules,
    Start,
)
from tests.partition_ids import P
from tests.property.retry_kafka import Stored
from tests.support import FakeBody

BAD = b"bad"
#: Records read at once, a fifth of them of the bad key.
BATCH = 200


class Shell:
    """Obeys at once: reads, transactions and commits take no time."""

    def __init__(self, backoff: Backoff, flaky: frozenset[bytes] = frozenset()) -> None:
        """`flaky`: keys whose messages are nacked once each."""
        rules = Rules(ordered=True, backoff=backoff, policy=Policy(0))
        self.flaky = flaky
        self.redelivered = self.checkpoints = self.moved = 0
        self.partition = Partition(
            Start(P[0], 1, 1, CommitBoth(0, "", Commit(0, "")), Found("t", "id")),
            rules,
            lambda: 0.5,
        )
        self.now = 0.0
        self.retry: list[Stored] = []
        self.others = self.bad = 0
        self.most_runs = 0
        self.do(RetryCaughtUp(0))
        self.do(Tick())

    def do(self, event: Event) -> None:
        for effect in self.partition.handle(event, self.now):
            self.obey(effect)

    def obey(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            for lease in effect.leases:
                self.do(LeasesReported([self.handle(lease)]))
        elif isinstance(effect, CommitBoth):
            self.commit(effect)
            self.do(CommitAnswered(True))
        elif isinstance(effect, StoreMoves):
            first = len(self.retry)
            for each in effect.records:
                self.moved += isinstance(each.record, RetryRecord) and each.record.key() == BAD
                self.retry.append(Stored(len(each.record), len(self.retry), each.record.key(), each.headers))
            where = len(self.retry) if effect.parts else None
            for part in effect.parts:
                self.retry.append(Stored(10, len(self.retry), None, effect.said, part))
            self.checkpoints += where is not None
            self.commit(effect.commit if effect.named is None else effect.named(where or 0))
            self.do(MovesAnswered(Ending.STORED, checkpoint=where))
            self.do(RetryFetched(self.retry[first:]))
        elif isinstance(effect, ReadBodies):
            self.do(Bodies([self.retry[offset] for offset in effect.offsets]))

    def handle(self, lease: Lease) -> LeaseReport:
        if lease.key == BAD:
            self.bad += 1
            return LeaseReport(lease, 0, LeaseOutcome.NACKED)
        if lease.key in self.flaky and lease.attempt == 1:
            return LeaseReport(lease, 0, LeaseOutcome.NACKED)
        self.redelivered += lease.attempt > 1
        self.others += len(lease.records)
        return LeaseReport(lease, len(lease.records), LeaseOutcome.FINISHED)

    def commit(self, commit: CommitBoth) -> None:
        for each in (commit, commit.retry):
            found = ack_map.decode(each.metadata, each.offset)
            assert found is not None
            assert len(each.metadata) <= ack_map.CAPACITY
            self.most_runs = max(self.most_runs, len(found.runs))


def run(shell: Shell, rounds: int, backlog: int = 5) -> int:
    """So many reads, a single record of `backlog` of the bad key; returns the most that waited in main's half."""
    published = largest = 0
    for _ in range(rounds):
        keys = [BAD if at % backlog == 0 else b"k%d" % (at % 97) for at in range(BATCH)]
        shell.do(Fetched([FakeBody(100, published + at, key) for at, key in enumerate(keys)]))
        published += BATCH
        for _ in range(3):
            shell.do(Demand(100, 100))
            shell.do(Tick())
        largest = max(largest, len(shell.partition._offsets.unfinished))
        shell.now += 1.0
    return largest


def test_one_failing_key_holds_up_nobody_and_fills_nothing() -> None:
    shell = Shell(Backoff(1, 10))
    largest, published = run(shell, 600), 600 * BATCH
    half = shell.partition._retry_partition
    assert shell.bad > 50
    assert shell.others > 0.99 * (published - published // 5)
    assert largest < 3 * BATCH
    assert len(half.retries.parking) > 0.9 * published // 5
    assert shell.most_runs < (ack_map.CAPACITY - ack_map.NOTED) // 4
    assert half.retries.bodies.size < 200 * (100 + RECORD_OVERHEAD)
    shell.partition._offsets.check()
    half.retries.finished_runs.check()


def test_what_finishes_among_many_that_wait_outgrows_no_map_and_moves_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A checkpoint is rare, and nothing moves for its sake."""
    monkeypatch.setattr(ack_map, "CAPACITY", ack_map.NOTED + 830)
    shell = Shell(Backoff(0.5, 0.5), frozenset([b"k7", b"k51"]))
    rounds = 1200
    largest = run(shell, rounds)
    half = shell.partition._retry_partition
    finished_runs = half.retries.finished_runs
    assert shell.most_runs < 250 < finished_runs.run_count, "the metadata doesn't tell them all"
    assert 2 <= shell.checkpoints < 0.1 * rounds
    assert shell.moved <= shell.bad
    assert shell.bad > 0.9 * rounds  # the bad key is tried as often as ever
    assert shell.redelivered > 1.5 * rounds
    assert largest < 3 * BATCH
    finished_runs.check()
