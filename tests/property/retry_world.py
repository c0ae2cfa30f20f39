"""A small Kafka and the owners of one partition that come and go over it, by a random schedule.

What it shows of Kafka: a retry log whose last stable offset lags behind its high watermark; transactions that are
decided before their markers are visible, and answered before or after; commits that are stored before they are
answered; generations that fence commits and transactions, but not handlers. A crash may come between any two steps.

What is checked, by books of its own
  order    a message begins under the current owner only when every earlier one of its key was acked or dead-lettered
  alone    in one process no two handlers of a key run at once
  durable  nothing begins again under the current owner after its ack was committed
  due      nothing begins before the time that its retry record says
  claims   a stored commit calls nothing finished that wasn't acked, dead-lettered or relocated with it
  lost     when everything settles, every message was acked or is a dead letter
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from kafka_pubsub.core import ack_map
from kafka_pubsub.core.effects import (
    Commit,
    CommitBoth,
    Deliver,
    Effect,
    ReadBodies,
    Relocate,
    Restart,
    Stop,
    Withdraw,
)
from kafka_pubsub.core.events import (
    Bodies,
    CommitAnswered,
    Demand,
    Ended,
    Event,
    Fetched,
    Lost,
    Passed,
    Progress,
    Progressed,
    Release,
    Released,
    Relocated,
    RetryCaughtUp,
    RetryFetched,
    Returned,
    Revoked,
    Settled,
    Settlement,
    Tick,
    Verdict,
)
from kafka_pubsub.core.leases import Lease
from kafka_pubsub.core.notes import NOTHING
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.redelivery import Backoff, Exhausted, Policy
from kafka_pubsub.core.retry_record import FOREVER, RETRY_HEADER, RetryInfo, RetryRecord, Why, decode
from kafka_pubsub.core.rules import RetryStart, Rules, Start
from kafka_pubsub.model import Ending, Header
from tests.support import FakeBody

__all__ = ["Plan", "World"]

TOPIC_ID = "id"
#: The wall clock less the world's time.
WALL = 1_000_000.0
EMPTY = CommitBoth(0, "", Commit(0, ""))


class Stored(FakeBody):
    """A record of the retry log."""

    def __init__(self, size: int, offset: int, key: bytes | None, headers: Sequence[Header]) -> None:
        super().__init__(size, offset, key)
        self._headers = list(headers)

    def headers(self) -> list[Header] | None:
        return self._headers


@dataclass(eq=False)
class Transaction:
    """One on its way."""

    owner: Owner
    relocate: Relocate
    state: str = "sent"  # sent, appended, decided
    committed: bool = False
    refused: dict[int, str] = field(default_factory=dict)
    #: Whether its marker in the retry log isn't visible yet. (That of its offsets delays `committed()`, which waits.)
    retry_marker: bool = False


@dataclass(eq=False)
class Walker:
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
    """One ownership in one process."""

    partition: Partition
    process: int
    generation: int
    read_main: int
    read_retry: int
    end: int
    walkers: list[Walker] = field(default_factory=list)
    commit: CommitBoth | None = None
    commit_applied: bool | None = None
    transaction: Transaction | None = None
    asked: list[int] | None = None
    caught_up: bool = False
    inline: Walker | None = None
    revoked: bool = False


@dataclass(frozen=True)
class Plan:
    """What may happen."""

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


class World:
    """The log, the owners, and the books."""

    def __init__(self, random: Random, plan: Plan) -> None:
        self.random, self.plan = random, plan
        self.now = 0.0
        self.calm = False
        self.main: list[FakeBody] = []
        self.retry: list[tuple[Stored, Transaction | None]] = []
        self.retry_end = 0
        self.stored = EMPTY
        self.generation = 0
        self.processes = 0
        self.transactions: list[Transaction] = []
        self.acked: set[int] = set()
        self.durable: set[int] = set()
        self.dead: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self.attempts: dict[int, tuple[int, int]] = {}
        self.stale: list[Owner] = []
        self.lingering: list[Walker] = []
        self.trace: list[str] = []
        self.begun = 0
        self.owner = self.take_over(same_process=False)

    def say(self, text: str) -> None:
        self.trace.append(f"{self.now:.2f} {text}")

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability

    # Ownership

    def take_over(self, *, same_process: bool) -> Owner:
        """A new owner: ends what is open, waits for what is committed, takes the retry log's high watermark."""
        self.generation += 1
        if not same_process:
            self.processes += 1
        for each in list(self.transactions):
            if each.state in ("sent", "appended"):
                each.state, each.committed = "decided", False
                each.retry_marker = each.retry_marker and bool(each.relocate.records)
        main, retry = self.stored, self.stored.retry
        found = ack_map.decode(main.metadata, main.offset)
        found_retry = ack_map.decode(retry.metadata, retry.offset)
        shift = self.random.choice([0.0, 37.5])
        self.shift = shift
        start = RetryStart(
            "t",
            TOPIC_ID,
            retry.offset,
            found_retry.runs if found_retry else (),
            not main.metadata or (found is not None and found.clean),
            found.notes if found else NOTHING,
            len(self.main) and self.main[-1].offset() + 1,
            found_retry.notes if found_retry else NOTHING,
            self.retry_end,
            WALL - shift,
            self.generation,
        )
        rules = Rules(
            self.plan.ordered,
            ack_deadline=10,
            max_extension=20,
            backoff=Backoff(1, 4),
            policy=Policy(self.plan.max_attempts, self.plan.on_exhausted),
            subscription="s",
        )
        held = [w.lease.key for w in self.lingering if w.lease.key is not None] if same_process else []
        if not same_process:
            self.lingering.clear()
        partition = Partition(
            Start(0, self.generation, 42, main, main.offset, found.runs if found else (), held, start),
            rules,
            self.random.random,
        )
        self.say(f"takes over from {main.offset}/{retry.offset} clean={start.clean} held={held}")
        return Owner(
            partition,
            self.processes,
            self.generation,
            partition.offsets.position,
            retry.offset,
            self.retry_end,
        )

    def crash(self, *, stall: bool = False) -> None:
        """The owner's process dies, or is cut off and goes on without knowing."""
        self.say("stall" if stall else "crash")
        old = self.owner
        if stall:
            self.stale.append(old)
        else:
            self.stale = [each for each in self.stale if each.process != old.process]
            if old.transaction is not None and old.transaction.state == "sent":
                self.transactions.remove(old.transaction)
        lingering = self.lingering
        self.lingering = []
        self.owner = self.take_over(same_process=False)
        del lingering

    def restart(self, owner: Owner) -> None:
        """A new ownership in the same process; handlers of the old one may still run."""
        if owner is not self.owner:
            if owner in self.stale:
                self.stale.remove(owner)
            return
        self.linger(owner)
        self.owner = self.take_over(same_process=True)

    def linger(self, owner: Owner) -> None:
        for walker in owner.walkers:
            walker.withdrawn = True
            if not walker.kept:
                self.lingering.append(walker)

    # Events and effects

    def do(self, owner: Owner, event: Event) -> None:
        if not isinstance(event, Tick):
            self.say(f"{owner.generation}: {str(event)[:150]}")
        effects = owner.partition.handle(event, self.now + self.clock(owner))
        for effect in effects:
            self.obey(owner, effect)
        owner.partition.check()
        wake = owner.partition.wakeup_at()
        assert wake is None or wake == owner.partition.wakeup_at()

    def clock(self, owner: Owner) -> float:
        half = owner.partition.half
        assert half is not None
        return WALL - half.retries._start.wall

    def obey(self, owner: Owner, effect: Effect) -> None:
        self.say(f"{owner.generation}:   -> {str(effect)[:200]}")
        if isinstance(effect, Deliver):
            for lease in effect.leases:
                self.delivered(owner, lease)
        elif isinstance(effect, CommitBoth):
            assert owner.commit is None, "two commits in flight"
            assert owner.transaction is None, "a plain commit beside a transaction"
            owner.commit, owner.commit_applied = effect, None
        elif isinstance(effect, Relocate):
            assert owner.commit is None, "a transaction beside a plain commit"
            assert owner.transaction is None, "two transactions"
            owner.transaction = Transaction(owner, effect)
            self.transactions.append(owner.transaction)
        elif isinstance(effect, ReadBodies):
            assert owner.asked is None
            owner.asked = list(effect.offsets)
        elif isinstance(effect, Stop | Withdraw):
            for walker in owner.walkers:
                if walker.lease in effect.leases:
                    walker.stopped = True
                    walker.withdrawn = walker.withdrawn or isinstance(effect, Withdraw)
        elif isinstance(effect, Restart):
            self.restart(owner)

    def delivered(self, owner: Owner, lease: Lease) -> None:
        if lease.key is not None:
            for other in owner.walkers + self.lingering:
                assert other.lease.key != lease.key or other.owner.process != owner.process, "I1: two holders"
        walker = Walker(owner, lease)
        if lease.key is None and self.plan.ordered and any(r.key() is not None for r in lease.records):
            owner.inline = walker
        else:
            owner.walkers.append(walker)

    # Handlers

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
            due = self.due.get(origin, 0) / 1000 - WALL
            assert self.now >= due - 1e-6, f"due: {origin} begins at {self.now}, due {due}"
        if origin in self.plan.killers and owner is self.owner:
            self.crash()
            return False
        return True

    def walk(self, walker: Walker) -> None:
        """A handler goes on by one step."""
        owner, lease = walker.owner, walker.lease
        lingering = walker in self.lingering
        if walker.kept:
            self.speak_up(walker)
        elif not walker.running:
            if walker.stopped or walker.withdrawn:
                self.let_go(walker, Verdict.UNTOUCHED)
                return
            walker.running, walker.started = True, self.now
            self.begins(owner, walker.record)
        elif walker.withdrawn or lingering:
            self.let_go(walker, Verdict.NACKED)
        elif self.chance(self.plan.nacks):
            what = self.random.choice([Verdict.NACKED, Verdict.NACKED, Verdict.KEPT])
            self.let_go(walker, what, self.random.choice([None, 0.0, 3.0]))
        else:
            self.ack(owner, walker.record)
            walker.at += 1
            walker.running = False
            if walker.at == len(lease.records):
                self.let_go(walker, Verdict.FINISHED)

    def ack(self, owner: Owner, record: object) -> None:
        assert isinstance(record, FakeBody | RetryRecord)
        if owner is self.owner or owner in self.stale:
            self.acked.add(record.offset())

    def let_go(self, walker: Walker, verdict: Verdict, delay: float | None = None) -> None:
        walker.running = False
        owner = walker.owner
        release = Release(walker.lease, walker.at, verdict, delay, "ValueError: no" if verdict else "")
        if walker in self.lingering:
            self.lingering.remove(walker)
            if walker.lease.key is not None and self.owner.process == owner.process:
                self.do(self.owner, Ended([walker.lease.key]))
            return
        if verdict is Verdict.KEPT and not walker.withdrawn:
            walker.kept = True
        elif walker in owner.walkers:
            owner.walkers.remove(walker)
        self.do(owner, Released([release]))

    def speak_up(self, walker: Walker) -> None:
        """The user says something about a message that was kept, perhaps too late."""
        owner = walker.owner
        if walker in owner.walkers:
            owner.walkers.remove(walker)
        acked = self.calm or self.random.random() < 0.5
        if acked and not walker.withdrawn:
            self.ack(owner, walker.record)
        times = 1 if self.calm else self.random.choice([1, 1, 2])
        for _ in range(times):  # told twice is told once
            self.do(owner, Settled([Settlement(walker.lease, walker.at, acked)]))

    def walk_inline(self, owner: Owner) -> None:
        """The reading thread takes all that it was given."""
        walker = owner.inline
        assert walker is not None
        owner.inline = None
        left: list[Release] = []
        skipped: list[object] = []
        keys: set[bytes | None] = set()
        reached = 0
        stop = (
            self.random.randint(0, len(walker.lease.records))
            if self.chance(0.3)
            else len(walker.lease.records)
        )
        for record in walker.lease.records[:stop]:
            reached += 1
            if record.key() in keys:
                skipped.append(record)
                continue
            if not self.begins(owner, record):
                return
            if self.chance(self.plan.nacks):
                lease = Lease(0, walker.lease.epoch, record.key(), [record], 1)
                verdict = self.random.choice([Verdict.NACKED, Verdict.KEPT])
                left.append(Release(lease, 0, verdict, None))
                if verdict is Verdict.KEPT:
                    owner.walkers.append(Walker(owner, lease, kept=True))
                if record.key() is not None:
                    keys.add(record.key())
            else:
                self.ack(owner, record)
        self.do(owner, Passed(walker.lease, reached, left, skipped))  # type: ignore[arg-type]

    # The log

    def publish(self) -> None:
        if len(self.main) < self.plan.messages:
            offset = self.main[-1].offset() + 1 if self.main else 0
            offset += self.random.choice([0, 0, 0, 1])
            self.main.append(FakeBody(10, offset, self.random.choice(self.plan.keys)))

    def fetch(self, owner: Owner) -> None:
        batch = [m for m in self.main if m.offset() >= owner.read_main][: self.random.randint(1, 8)]
        if batch:
            owner.read_main = batch[-1].offset() + 1
            inline = self.plan.inline and self.chance(0.5)
            self.do(owner, Fetched(batch, inline))
            if owner.inline is not None:
                self.walk_inline(owner)

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

    def fetch_retry(self, owner: Owner) -> None:
        batch = self.visible(owner.read_retry)[: self.random.randint(1, 6)]
        if batch:
            owner.read_retry = batch[-1].offset() + 1
            self.do(owner, RetryFetched(batch))
        if not self.visible(owner.read_retry):
            owner.read_retry = max(owner.read_retry, self.last_stable())
        if not owner.caught_up and owner.read_retry >= owner.end:
            owner.caught_up = True
            self.do(owner, RetryCaughtUp(owner.read_retry))

    def answer_bodies(self, owner: Owner) -> None:
        asked, owner.asked = owner.asked or [], None
        some = [offset for offset in asked if not self.chance(0.2)]
        records = [record for record in self.visible(0) if record.offset() in some]
        there = {record.offset() for record in records}
        self.do(owner, Bodies(records, [offset for offset in some if offset not in there]))

    def inject_broken(self) -> None:
        """Somebody writes rubbish into the retry topic."""
        self.retry.append((Stored(3, self.retry_end, b"a", [(RETRY_HEADER, b"rubbish")]), None))
        self.retry_end += 1

    # Commits and transactions

    def apply(self, commit: CommitBoth) -> None:
        """The log stores a commit."""
        finished = self.finished_by(commit)
        waiting = self.waiting_by(commit)
        claimed = finished - waiting
        done = self.acked | self.dead.keys()
        assert claimed <= done, f"claims: {claimed - done} is called finished"
        self.stored = commit
        if news := (claimed & self.acked) - self.durable:
            self.say(f"durable now: {sorted(news)}")
            self.durable |= news

    def finished_by(self, commit: CommitBoth) -> set[int]:
        found = ack_map.decode(commit.metadata, commit.offset)
        assert found is not None
        covered = {o for start, end in found.runs for o in range(start, end)}
        return {m.offset() for m in self.main if m.offset() < commit.offset or m.offset() in covered}

    def waiting_by(self, commit: CommitBoth) -> set[int]:
        """Origins that wait in the retry log, by its own books."""
        retry = commit.retry
        found = ack_map.decode(retry.metadata, retry.offset)
        assert found is not None
        covered = {o for start, end in found.runs for o in range(start, end)}
        waiting = set()
        for record, each in self.retry:
            if record.offset() >= retry.offset and record.offset() not in covered:
                info = decode(record._headers[-1][1]) if record._headers else None
                if isinstance(info, RetryInfo) and (each is None or each.committed):
                    waiting.add(info.origin)
        return waiting

    def step_commit(self, owner: Owner) -> None:
        """A plain commit is stored or refused, and later answered."""
        assert owner.commit is not None
        if owner.commit_applied is None:
            current = owner.generation == self.generation
            owner.commit_applied = current and not self.chance(0.1)
            if owner.commit_applied:
                self.apply(owner.commit)
            if not self.calm and self.random.random() < 0.5:
                return
        accepted, owner.commit = owner.commit_applied, None
        self.do(owner, CommitAnswered(accepted))

    def step_transaction(self, each: Transaction) -> None:
        """One step of a transaction: append, decide, answer; markers come by themselves."""
        owner = each.owner
        if each.state == "sent":
            for other in [other for other in self.transactions if other.owner is owner and other is not each]:
                self.show(other)  # a producer's next transaction waits for its last one's markers
            for relocation in each.relocate.records:
                if not relocation.dead:
                    record = relocation.record
                    body = Stored(len(record), self.retry_end, record.key(), relocation.headers)
                    self.retry.append((body, each))
                    self.retry_end += 1
                    each.retry_marker = True
            each.state = "appended"
        elif each.state == "appended":
            self.decide(each)
        elif owner.transaction is each:
            self.answer(each)
        if self.calm:
            self.show(each)

    def decide(self, each: Transaction) -> None:
        current = each.owner.generation == self.generation
        each.committed = current and not self.chance(self.plan.aborts)
        each.state = "decided"
        if each.committed:
            for relocation in each.relocate.records:
                if relocation.dead:
                    headers = dict(relocation.headers)
                    if "ps-dead-offset" in headers:
                        origin = int(headers["ps-dead-offset"] or b"")
                        assert origin not in self.dead, "buried twice"
                        self.dead[origin] = int(headers["ps-dead-attempts"] or b"")
                        assert self.dead[origin] == self.plan.max_attempts, "buried too early, or too late"
                else:
                    info = decode(relocation.headers[-1][1])
                    if isinstance(info, RetryInfo):
                        self.check_attempt(each.owner, info)
                        self.due[info.origin] = info.due
        elif current and self.chance(self.plan.refusals) and each.relocate.records:
            each.refused = {self.random.randrange(len(each.relocate.records)): "too large"}
        if each.retry_marker:
            self.retry_end += 1  # the marker takes an offset
        if each.committed:
            self.apply(each.relocate.commit)

    def check_attempt(self, owner: Owner, info: RetryInfo) -> None:
        """Each failure is one attempt more; waiting and moving on are none."""
        before, crashes = self.attempts.get(info.origin, (1, 0))
        half = owner.partition.half
        assert half is not None
        failed = info.why in (Why.NACKED, Why.EXPIRED) and info.due != self.due.get(info.origin)
        if not half.retries.outage.probing and info.why is not Why.EXHAUSTED:
            assert info.attempt - before == failed, f"attempt {info.attempt} after {before}: {info}"
        assert info.crashes - crashes == (info.why is Why.CRASHED and info.due != self.due.get(info.origin))
        self.attempts[info.origin] = (info.attempt, info.crashes)

    def show(self, each: Transaction) -> None:
        """Markers become visible."""
        if each.state == "decided":
            each.retry_marker = False
            if each.owner.transaction is not each:
                self.transactions.remove(each)

    def answer(self, each: Transaction) -> None:
        owner = each.owner
        owner.transaction = None
        ending = Ending.STORED if each.committed else Ending.ABORTED
        if self.chance(self.plan.unknown):
            ending = Ending.UNKNOWN
        self.do(owner, Relocated(ending, each.refused))

    # The schedule

    def quiet(self, owner: Owner) -> None:
        """Every commit of the owner has been answered."""
        while owner.commit is not None or owner.transaction is not None:
            if owner.commit is not None:
                self.step_commit(owner)
            elif owner.transaction is not None:
                self.step_transaction(owner.transaction)

    def revoke(self) -> None:
        """The group takes the partition, and gives it back or doesn't."""
        owner = self.owner
        self.quiet(owner)
        if owner is not self.owner:
            return  # its transaction's outcome was unknown
        self.say("revoke")
        self.do(owner, Revoked())
        self.quiet(owner)
        if owner is not self.owner:
            return
        same = owner.partition.commits.stored == self.stored
        for each in list(self.transactions):
            if each.owner is owner:
                self.show(each)
        if same and self.chance(0.6):
            self.do(owner, Returned())
            for walker in owner.walkers:
                walker.stopped = walker.stopped and walker.running
        else:
            self.do(owner, Lost())
            self.restart(owner)

    def step(self) -> None:
        """Something happens."""
        if self.chance(self.plan.crashes):
            self.crash(stall=self.chance(self.plan.stalls))
        elif self.chance(0.01):
            self.revoke()
        elif self.plan.broken and self.chance(0.01):
            self.inject_broken()
        else:
            owner = self.random.choice(self.stale) if self.stale and self.chance(0.2) else self.owner
            acts = [
                self.publish_one,
                self.fetch,
                self.fetch_retry,
                self.demand,
                self.pass_time,
                self.answer_one,
                self.transact,
                self.move_handler,
            ]
            self.random.choices(acts, (5, 5, 10, 10, 12, 12, 18, 28))[0](owner)

    def publish_one(self, owner: Owner) -> None:
        self.publish()

    def demand(self, owner: Owner) -> None:
        if owner.partition.deliverable:
            self.do(owner, Demand(self.random.randint(1, 4), self.random.randint(1, 4)))

    def pass_time(self, owner: Owner) -> None:
        self.now += self.random.choice([0.01, 0.01, 0.2, 0.2, 1.5, 5.0])
        self.tick(owner)

    def answer_one(self, owner: Owner) -> None:
        if owner.commit is not None:
            self.step_commit(owner)
        elif owner.asked is not None:
            self.answer_bodies(owner)

    def transact(self, owner: Owner) -> None:
        if self.transactions:
            each = self.random.choice(self.transactions)
            (self.show if each.owner.transaction is not each else self.step_transaction)(each)

    def tick(self, owner: Owner) -> None:
        steps = [
            Progress(walker.lease, walker.at, walker.started + self.clock(owner))
            for walker in owner.walkers
            if walker.running and not walker.kept
        ]
        self.do(owner, Progressed(steps))
        self.do(owner, Tick())
        owner.walkers = [walker for walker in owner.walkers if not (walker.kept and walker.withdrawn)]

    def move_handler(self, owner: Owner) -> None:
        walkers = owner.walkers + (self.lingering if owner is self.owner else [])
        if walkers:
            self.walk(self.random.choice(walkers))

    def run(self, steps: int) -> None:
        """Faults for a while; then everything settles."""
        for _ in range(steps):
            self.step()
        self.settle()

    def settle(self) -> None:
        self.calm = True
        while len(self.main) < self.plan.messages:
            self.publish()
        for _ in range(6000):
            if self.settled():
                return
            self.step()
            if self.random.random() < 0.05:
                self.now += 10.0
        unfinished = {m.offset() for m in self.main} - self.acked - self.dead.keys()
        raise AssertionError(f"lost: {unfinished} of {len(self.main)}, {self.owner.partition.commits.stored}")

    def parked_for_ever(self) -> set[int]:
        return {origin for origin, due in self.due.items() if due >= FOREVER and origin not in self.acked}

    def settled(self) -> bool:
        end = self.main[-1].offset() + 1
        blocked: set[int] = set()
        for origin in self.parked_for_ever():
            key = next(m.key() for m in self.main if m.offset() == origin)
            later = {m.offset() for m in self.main if m.key() == key and m.offset() >= origin}
            blocked |= later if key is not None and self.plan.ordered else {origin}
        waiting = self.waiting_by(self.stored) if self.stored.metadata else {0}
        everything = {m.offset() for m in self.main}
        return (
            self.stored.offset >= end - 1
            and everything <= (self.acked | self.dead.keys() | blocked)
            and waiting <= blocked
        )
