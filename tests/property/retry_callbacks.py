"""The handlers of `retry_world`: begin, ack, nack, keep, and die, one small step at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_pubsub.subscribe.formats.record import RetryRecord
from kafka_pubsub.subscribe.partition.effects import CommitBoth, WriteDeadLetters
from kafka_pubsub.subscribe.partition.events import (
    Ended,
    Event,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    Nacked,
    Passed,
    Settled,
)
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement
from kafka_pubsub.subscribe.partition.partition import Partition
from tests.property.retry_kafka import WALL, RetryLog, Transaction
from tests.support import FakeBody

__all__ = ["Handlers", "Owner", "Runner"]


@dataclass(eq=False)
class Runner:
    """A holder, and the handler that it is in."""

    owner: Owner
    lease: Lease
    at: int = 0
    running: bool = False
    stopped: bool = False
    withdrawn: bool = False
    kept: bool = False
    started: float = 0.0

    @property
    def record(self) -> object:
        return self.lease.records[self.at]


@dataclass(eq=False)
class Owner:
    """An ownership in a process."""

    partition: Partition
    process: int
    generation: int
    read_main: int
    read_retry: int
    end: int
    runners: list[Runner] = field(default_factory=list)
    commit: CommitBoth | None = None
    commit_applied: bool | None = None
    transaction: Transaction | None = None
    asked: list[int] | None = None
    #: Dead letters that are being written, and letters that the log has taken.
    dead_lettering: WriteDeadLetters | None = None
    written: WriteDeadLetters | None = None
    caught_up: bool = False
    inline: Runner | None = None
    revoked: bool = False
    #: Its clock less the world's; and by how much the wall clock was wrong at the last look.
    shift: float = 0.0
    wrong_by: float = 0.0
    #: When its messages are due, by origin.
    due: dict[int, float] = field(default_factory=dict)
    #: Whether its process stood still, and whether the commit that is under way was made since.
    doubts: bool = False
    made_since: bool = False


class Handlers(RetryLog):
    """The handlers of all owners."""

    owner: Owner
    stale: list[Owner]
    lingering: list[Runner]
    begun = 0

    def do(self, owner: Owner, event: Event) -> None:
        """The world tells an owner of an event."""
        raise NotImplementedError

    def crash(self, *, stall: bool = False) -> None:
        """The owner's process dies."""
        raise NotImplementedError

    def begins(self, owner: Owner, record: object) -> bool:
        """A handler begins; False if that was the end of its process."""
        assert isinstance(record, FakeBody | RetryRecord)
        origin, key = record.offset(), record.key()
        self.begun += 1
        self.say(f"{owner.generation}: begins {origin} {key!r}")
        if owner is self.owner:
            earlier = [m.offset() for m in self.main if m.key() == key and m.offset() < origin]
            if self.plan.ordered and key is not None:
                missing = [o for o in earlier if o not in self.acked and o not in self.dead]
                assert not missing, f"order: {origin} of {key!r} begins before {missing}"
            assert origin not in self.durable, f"durable: {origin} begins again"
            due = (
                owner.due.get(origin, 0.0) if self.plan.clock_steps else self.due.get(origin, 0) / 1000 - WALL
            )
            assert self.now >= due - 1e-6, f"due: {origin} begins at {self.now}, due {due}"
        if origin in self.plan.killers and owner is self.owner:
            self.crash()
            return False
        return True

    def walk(self, runner: Runner) -> None:
        """A handler goes on by a single step."""
        owner, lease = runner.owner, runner.lease
        lingering = runner in self.lingering
        if runner.kept:
            self.speak_up(runner)
        elif not runner.running:
            if runner.stopped or runner.withdrawn:
                self.let_go(runner, LeaseOutcome.UNTOUCHED)
                return
            runner.running, runner.started = True, self.now
            self.begins(owner, runner.record)
        elif runner.withdrawn or lingering:
            self.let_go(runner, LeaseOutcome.NACKED)
        elif self.chance(self.plan.nacks):
            what = self.random.choice([LeaseOutcome.NACKED, LeaseOutcome.NACKED, LeaseOutcome.KEPT])
            self.let_go(runner, what, self.random.choice([None, 0.0, 3.0]))
        else:
            self.ack(owner, runner.record)
            runner.at += 1
            runner.running = False
            if runner.at == len(lease.records):
                self.let_go(runner, LeaseOutcome.FINISHED)

    def ack(self, owner: Owner, record: object) -> None:
        assert isinstance(record, FakeBody | RetryRecord)
        if owner is self.owner or owner in self.stale:
            self.acked.add(record.offset())

    def let_go(self, runner: Runner, outcome: LeaseOutcome, delay: float | None = None) -> None:
        runner.running = False
        owner = runner.owner
        release = LeaseReport(runner.lease, runner.at, outcome, delay, "ValueError: no" if outcome else "")
        if runner in self.lingering:
            self.lingering.remove(runner)
            if runner.lease.key is not None and self.owner.process == owner.process:
                self.do(self.owner, Ended([runner.lease.key]))
            return
        if outcome is LeaseOutcome.KEPT and not runner.withdrawn:
            runner.kept = True
        elif runner in owner.runners:
            owner.runners.remove(runner)
        self.do(owner, LeasesReported([release]))

    def speak_up(self, runner: Runner) -> None:
        """The user says something about a message that was kept, perhaps too late."""
        owner = runner.owner
        if runner in owner.runners:
            owner.runners.remove(runner)
        acked = self.calm or self.random.random() < 0.5
        if acked and not runner.withdrawn:
            self.ack(owner, runner.record)
        times = 1 if self.calm else self.random.choice([1, 1, 2])
        for _ in range(times):  # told twice is told once
            self.do(owner, Settled([Settlement(runner.lease, runner.at, acked)]))

    def do_inline(self, owner: Owner, event: Event) -> None:
        """Tells the owner of an event, and takes the inline lease of the answer, if there is one."""
        self.do(owner, event)
        if owner.inline is not None:
            self.run_inline(owner)

    def run_inline(self, owner: Owner) -> None:
        """The reading thread takes its messages: all, or up to a take-over, or up to the end of its process."""
        runner = owner.inline
        assert runner is not None
        owner.inline = None
        left: list[LeaseReport] = []
        nacked: list[Nacked] = []
        skipped: list[object] = []
        keys: set[bytes | None] = set()
        reached = 0
        stop = (
            self.random.randint(0, len(runner.lease.records))
            if self.chance(0.3)
            else len(runner.lease.records)
        )
        for record in runner.lease.records[:stop]:
            reached += 1
            key = record.key() if self.plan.ordered else None
            if key in keys:
                skipped.append(record)
                continue
            if not self.begins(owner, record):
                return
            if owner is self.owner and self.chance(self.plan.crashes):
                self.crash()
                return
            if self.chance(0.05):  # a take-over: this record's handler goes on
                runner.running, runner.started = True, self.now
                owner.runners.append(runner)
                passed = Passed(runner.lease, reached - 1, left, skipped, True, nacked)  # type: ignore[arg-type]
                self.do(owner, passed)
                return
            if self.chance(self.plan.nacks):
                if self.chance(0.5):
                    nacked.append((record, self.random.choice([None, 0.0, 3.0]), "ValueError: no"))
                else:
                    lease = runner.lease.of_one(record, key)
                    left.append(LeaseReport(lease, 0, LeaseOutcome.KEPT, None))
                    owner.runners.append(Runner(owner, lease, kept=True))
                if key is not None:
                    keys.add(key)
            else:
                self.ack(owner, record)
        self.do(owner, Passed(runner.lease, reached, left, skipped, False, nacked))  # type: ignore[arg-type]
