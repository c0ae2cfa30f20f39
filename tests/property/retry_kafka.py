"""The small Kafka of `retry_world`: a main and a retry partition, a group's commits, transactions, and the books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from kafka_pubsub.model import Header, Run
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import (
    NONCE_SHIFT,
    Checkpoint,
    Log,
    Named,
    Part,
    joined,
    united,
)
from kafka_pubsub.subscribe.formats.record import RETRY_HEADER, RetryInfo, Why, decode
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, StoreMoves
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.settings import Exhausted
from tests.support import FakeBody

__all__ = ["WALL", "Plan", "RetryLog", "Stored", "Transaction"]

#: The wall clock less the world's time.
WALL = 1_000_000.0
EMPTY = CommitBoth(0, "", Commit(0, ""))


class Member(Protocol):
    """An owner, as the log sees it."""

    generation: int
    partition: Partition
    transaction: Transaction | None


class Stored(FakeBody):
    """A record of the retry log."""

    def __init__(
        self, size: int, offset: int, key: bytes | None, headers: Sequence[Header], part: Part | None = None
    ) -> None:
        super().__init__(size, offset, key)
        self._headers = list(headers)
        #: Its contents, if it is a checkpoint's.
        self.part = part

    def headers(self) -> list[Header] | None:
        return self._headers


@dataclass(eq=False)
class Transaction:
    """A transaction on its way."""

    owner: Member
    relocate: StoreMoves
    state: str = "sent"  # sent, appended, decided
    committed: bool = False
    refused: dict[int, str] = field(default_factory=dict)
    #: Where the first record of its checkpoint lies.
    checkpoint: int | None = None
    #: Whether its marker in the retry log isn't visible yet. (That of its offsets delays `committed()`, which waits.)
    retry_marker: bool = False


@dataclass(frozen=True)
class Plan:
    """The steps that may happen."""

    messages: int = 40
    keys: tuple[bytes | None, ...] = (b"a", b"b", b"c", None)
    ordered: bool = True
    nacks: float = 0.3
    crashes: float = 0.006
    stalls: float = 0.5
    unknown: float = 0.15
    aborts: float = 0.15
    refusals: float = 0.1
    max_attempts: int = 5
    on_exhausted: Exhausted = Exhausted.DEAD_LETTER
    #: Origins whose handler kills its process.
    killers: frozenset[int] = frozenset()
    broken: bool = False
    inline: bool = True
    #: Chance that the broker forgets the group's positions.
    forgets: float = 0.0
    #: How much likelier a crash is while commits name a checkpoint.
    after_checkpoints: float = 1.0
    #: Chances at each step that the owner's process stood still, and that the wall clock is set, right or wrong.
    doubts: float = 0.0
    clock_steps: float = 0.0


class RetryLog:
    """The contents of the log, and books of its own about the truth."""

    def __init__(self, random: Random, plan: Plan) -> None:
        self.random, self.plan = random, plan
        self.now = 0.0
        self.calm = False
        self.main: list[FakeBody] = []
        self.retry: list[tuple[Stored, Transaction | None]] = []
        self.retry_end = 0
        #: Below that offset the retry log was deleted.
        self.retry_start = 0
        self.stored = EMPTY
        #: Whether the group has no positions: then the newest checkpoint's count.
        self.forgotten = False
        self.generation = 0
        self.transactions: list[Transaction] = []
        self.acked: set[int] = set()
        self.durable: set[int] = set()
        self.dead: dict[int, int] = {}
        self.due: dict[int, int] = {}
        #: The contents of the last record of each origin.
        self.said: dict[int, RetryInfo] = {}
        self.trace: list[str] = []

    def say(self, text: str) -> None:
        self.trace.append(f"{self.now:.2f} {text}")

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability

    def publish(self) -> None:
        if len(self.main) < self.plan.messages:
            offset = self.main[-1].offset() + 1 if self.main else 0
            offset += self.random.choice([0, 0, 0, 1])
            self.main.append(FakeBody(10, offset, self.random.choice(self.plan.keys)))

    def last_stable(self) -> int:
        open_offsets = [
            record.offset()
            for record, each in self.retry
            if each is not None and (each.state != "decided" or each.retry_marker)
        ]
        return min(open_offsets, default=self.retry_end)

    def visible(self, at: int) -> list[Stored]:
        return [
            record
            for record, each in self.retry
            if at <= record.offset() < self.last_stable() and (each is None or each.committed)
        ]

    def inject_broken(self) -> None:
        """Somebody writes rubbish into the retry topic."""
        self.retry.append((Stored(3, self.retry_end, b"a", [(RETRY_HEADER, b"rubbish")]), None))
        self.retry_end += 1

    def apply(self, commit: CommitBoth) -> None:
        """The log stores a commit."""
        finished = self.finished_by(commit)
        waiting = self.waiting_by(commit)
        claimed = finished - waiting
        done = self.acked | self.dead.keys()
        assert claimed <= done, f"claims: {claimed - done} is called finished"
        self.stored, self.forgotten = commit, False
        if news := (claimed & self.acked) - self.durable:
            self.say(f"durable now: {sorted(news)}")
            self.durable |= news

    def finished_by(self, commit: CommitBoth) -> set[int]:
        covered = {o for start, end in self.runs_of(commit)[0] for o in range(start, end)}
        return {m.offset() for m in self.main if m.offset() < commit.offset or m.offset() in covered}

    def checkpoint(self, named: Named | None) -> Checkpoint | None:
        """The checkpoint that a commit names: it is there, and committed."""
        if named is None:
            return None
        assert named.offset >= self.retry_start, "the named checkpoint was deleted"
        parts: list[Part] = []
        for record, each in self.retry:
            part = record.part if record.offset() >= named.offset else None
            if part is not None and part.checkpoint.nonce == named.nonce:
                assert each is None or each.committed, "a checkpoint is named that can't be read"
                parts.append(part)
        found = joined(parts)
        assert found is not None, "a checkpoint is named that isn't whole"
        return found

    def recall(self) -> None:
        """The newest checkpoint counts; acks that became durable since don't any more."""
        self.stored, self.forgotten = EMPTY, True
        begins = [
            Named(record.offset(), record.part.checkpoint.nonce)
            for record, each in self.retry
            if record.part is not None
            and record.part.number == 0
            and record.offset() >= self.retry_start
            and (each is None or each.committed)
        ]
        if begins:
            found = self.checkpoint(begins[-1])
            assert found is not None
            main = self.recalled(begins[-1], found.main)
            self.stored = CommitBoth(main.offset, main.metadata, self.recalled(begins[-1], found.retry))
        claimed = self.finished_by(self.stored) - self.waiting_by(self.stored)
        self.durable &= claimed

    @staticmethod
    def recalled(named: Named, log: Log) -> Commit:
        more = any(end > log.position for _, end in log.runs)
        said = AckMap(0, (), True, named.nonce >> NONCE_SHIFT, checkpoint=named, more=more)
        return Commit(log.position, ack_map.encode(said, log.position))

    def runs_of(self, commit: CommitBoth) -> tuple[list[Run], list[Run]]:
        """The offsets that a commit calls finished above both positions, by itself and by its checkpoint."""
        found = ack_map.decode(commit.metadata, commit.offset)
        beside = ack_map.decode(commit.retry.metadata, commit.retry.offset)
        main = self.whole(found, commit.offset, lambda checkpoint: checkpoint.main)
        return main, self.whole(beside, commit.retry.offset, lambda checkpoint: checkpoint.retry)

    def whole(self, found: AckMap | None, position: int, log_of: Callable[[Checkpoint], Log]) -> list[Run]:
        """The runs of a half."""
        if found is None:
            return []
        told = self.checkpoint(found.checkpoint)
        runs = () if told is None else log_of(told).runs
        self.more(found, runs, position)
        return united(found.runs, runs, position)

    def more(self, found: AckMap, runs: Sequence[Run], position: int) -> None:
        assert found.more == any(end > position for _, end in runs), "what a checkpoint tells isn't said"

    def waiting_by(self, commit: CommitBoth) -> set[int]:
        """Origins that wait in the retry log, by its own books."""
        retry = commit.retry
        covered = {o for start, end in self.runs_of(commit)[1] for o in range(start, end)}
        waiting = set()
        for record, each in self.retry:
            if record.offset() >= retry.offset and record.offset() not in covered:
                info = decode(record._headers[-1][1]) if record._headers else None
                committed = each is None or each.committed
                if committed and isinstance(info, RetryInfo) and info.why is not Why.CHECKPOINT:
                    waiting.add(info.origin)
        return waiting

    def append(self, each: Transaction) -> None:
        """A transaction's records are in the log, and not yet to be seen."""
        for move in each.relocate.records:
            if not move.dead:
                record = move.record
                self.put(each, Stored(len(record), self.retry_end, record.key(), move.headers))
        for part in each.relocate.parts:
            if each.checkpoint is None:
                each.checkpoint = self.retry_end
            elif self.random.random() < 0.3:
                self.inject_broken()  # another writer's record may lie between two parts
            self.put(each, Stored(10, self.retry_end, None, each.relocate.said, part))
        each.state = "appended"

    def put(self, each: Transaction, body: Stored) -> None:
        """A record of a transaction is in the log."""
        self.retry.append((body, each))
        self.retry_end += 1
        each.retry_marker = True

    def decide(self, each: Transaction) -> None:
        current = each.owner.generation == self.generation
        each.committed = current and not self.chance(self.plan.aborts)
        each.state = "decided"
        if each.committed:
            for move in each.relocate.records:
                if move.dead:
                    headers = dict(move.headers)
                    if "ps-dead-offset" in headers:
                        origin = int(headers["ps-dead-offset"] or b"")
                        assert origin not in self.dead, "buried twice"
                        self.dead[origin] = int(headers["ps-dead-attempts"] or b"")
                        assert self.dead[origin] == self.plan.max_attempts, "buried too early, or too late"
                else:
                    info = decode(move.headers[-1][1])
                    if isinstance(info, RetryInfo):
                        self.check_attempt(each.owner, info)
                        self.due[info.origin] = info.due
        elif current and self.chance(self.plan.refusals) and each.relocate.records:
            each.refused = {self.random.randrange(len(each.relocate.records)): "too large"}
        if each.retry_marker:
            self.retry_end += 1  # the marker takes an offset
        if each.committed:
            named = each.relocate.named
            self.apply(each.relocate.commit if named is None else named(each.checkpoint or 0))

    def check_attempt(self, owner: Member, info: RetryInfo) -> None:
        """Each failure is an attempt more; waiting and moving on are none."""
        before = self.said.get(info.origin, RetryInfo("", 0, info.origin))
        self.said[info.origin] = info
        half = owner.partition._retry_partition
        if info == before:
            return  # moved within the retry partition
        crashed = info.crashes - before.crashes
        last = info.why in (Why.EXHAUSTED, Why.UNBURIED)
        assert crashed == (info.why is Why.CRASHED) or (crashed == 1 and last)
        if info.why is Why.UNBURIED:  # noted as the attempt after the last, once
            assert info.attempt - before.attempt + crashed == (before.why is not Why.UNBURIED), info
        elif not half.retries.outage.probing and info.why is not Why.EXHAUSTED:
            failed = info.why in (Why.NACKED, Why.DELAYED, Why.EXPIRED)
            assert info.attempt - before.attempt == failed, (
                f"attempt {info.attempt} after {before.attempt}: {info}"
            )

    def show(self, each: Transaction) -> None:
        """Markers become visible."""
        if each.state == "decided":
            each.retry_marker = False
            if each.owner.transaction is not each:
                self.transactions.remove(each)
