"""A small Kafka and the owners of a partition that come and go over it, by a random schedule.

Its parts of Kafka: a retry log whose last stable offset lags behind its high watermark; transactions that are
decided before their markers are visible, and answered before or after; commits that are stored before they are
answered; generations that fence commits and transactions, but not handlers. A crash may come between any two steps.

Checked, by books of its own
  order    a message begins under the current owner only when every earlier message of its key was acked or
  dead-lettered since    when its process stood still, nothing begins before a commit was accepted that was made since
  alone    in a single process no two handlers of a key run at once
  durable  nothing begins again under the current owner after its ack was committed
  due      nothing begins before the time that its retry record says, by the wall clock when the record was read
  claims   a stored commit calls only messages finished that were acked, dead-lettered or relocated with it
  lost     when everything settles, every message was acked or is a dead letter
"""

from __future__ import annotations

from random import Random

from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.notes import NO_DOUBT, NOTHING
from kafka_pubsub.subscribe.formats.record import FOREVER, RetryInfo, Why, decode
from kafka_pubsub.subscribe.partition.effects import (
    CommitBoth,
    Deliver,
    Effect,
    ReadBodies,
    Restart,
    Stop,
    StoreMoves,
    Trim,
    Withdraw,
    WriteDeadLetters,
)
from kafka_pubsub.subscribe.partition.events import (
    Bodies,
    CommitAnswered,
    Demand,
    Event,
    Fetched,
    Lost,
    MovesAnswered,
    Progress,
    Progressed,
    ReadUpTo,
    RetryCaughtUp,
    RetryFetched,
    Returned,
    Revoked,
    Tick,
    Written,
)
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.next_move import LATEST
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.settings import (
    LONGEST_DELAY,
    Backoff,
    Found,
    LogStart,
    Policy,
    Rules,
    Start,
)
from tests.partition_ids import P
from tests.property.retry_callbacks import Handlers, Owner, Runner
from tests.property.retry_kafka import WALL, Plan, Transaction

__all__ = ["TOPIC_ID", "Owner", "Plan", "World"]

TOPIC_ID = "id"


class World(Handlers):
    """The owners, and their steps."""

    def __init__(self, random: Random, plan: Plan) -> None:
        super().__init__(random, plan)
        #: Seconds by which the wall clock is wrong.
        self.wrong_by = 0.0
        self.processes = 0
        self.stale: list[Owner] = []
        self.lingering: list[Runner] = []
        self.owner = self.take_over(same_process=False)

    # Ownership

    def take_over(self, *, same_process: bool) -> Owner:
        """A new owner: ends open transactions, waits for committed positions, takes the retry log's high watermark."""
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
        named = found_retry.checkpoint if found_retry else None
        told = self.checkpoint(named)
        known, known_retry = self.runs_of(main)
        shift = self.random.choice([0.0, 37.5])
        clean, end = not main.metadata or (found is not None and found.clean), self.main_end()
        home = LogStart(
            main.offset,
            known,
            found.notes if found else NOTHING,
            (found.doubt if found else NO_DOUBT).next(main.offset, clean=clean, reach=end),
            end,
            () if told is None else told.main.runs,
        )
        beside = LogStart(
            retry.offset,
            known_retry,
            found_retry.notes if found_retry else NOTHING,
            (found_retry.doubt if found_retry else NO_DOUBT).next(
                retry.offset, clean=clean, reach=self.retry_end
            ),
            self.retry_end,
            () if told is None else told.retry.runs,
        )
        start = Found(
            "t",
            TOPIC_ID,
            home,
            beside,
            wall=WALL - shift + self.wrong_by,
            nonce=self.generation,
            checkpoint=named,
            older=self.forgotten or (found is not None and found.older),
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
            Start(P[0], self.generation, 42, main, start, held),
            rules,
            self.random.random,
        )
        self.say(
            f"takes over from {main.offset}/{retry.offset} clean={clean} {home.doubt} {beside.doubt} held={held}"
        )
        return Owner(
            partition,
            self.processes,
            self.generation,
            partition._offsets.position,
            retry.offset,
            self.retry_end,
            shift=shift,
            wrong_by=self.wrong_by,
        )

    def main_end(self) -> int:
        return self.main[-1].offset() + 1 if self.main else 0

    def forget(self) -> None:
        """The group is empty for so long that the broker forgets its positions."""
        self.say("forgotten")
        self.stale.clear()
        self.lingering.clear()
        self.generation += 1
        for each in list(self.transactions):
            if each.state != "decided":
                each.state, each.committed = "decided", False
            each.retry_marker = False
        self.transactions.clear()
        self.recall()
        self.owner = self.take_over(same_process=False)

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
        for runner in owner.runners:
            runner.withdrawn = True
            if not runner.kept:
                self.lingering.append(runner)

    # Events and effects

    def do(self, owner: Owner, event: Event) -> None:
        if not isinstance(event, Tick):
            self.say(f"{owner.generation}: {str(event)[:150]}")
        effects = owner.partition.handle(event, self.now + owner.shift)
        for effect in effects:
            self.obey(owner, effect)
        owner.partition.check()
        wake = owner.partition.wakeup_at()
        assert wake is None or wake == owner.partition.wakeup_at()

    def obey(self, owner: Owner, effect: Effect) -> None:
        self.say(f"{owner.generation}:   -> {str(effect)[:200]}")
        if isinstance(effect, Deliver):
            for lease in effect.leases:
                self.delivered(owner, lease)
        elif isinstance(effect, CommitBoth):
            assert owner.commit is None, "two commits in flight"
            assert owner.transaction is None, "a plain commit beside a transaction"
            owner.commit, owner.commit_applied = effect, None
            owner.made_since = owner.doubts
        elif isinstance(effect, StoreMoves):
            self.begin_transaction(owner, effect)
        elif isinstance(effect, WriteDeadLetters):
            assert owner.dead_lettering is None and owner.written is None, "two burials"  # noqa: PT018
            owner.dead_lettering = effect
        elif isinstance(effect, ReadBodies):
            assert owner.asked is None
            owner.asked = list(effect.offsets)
        elif isinstance(effect, Trim):
            self.retry_start = max(self.retry_start, effect.offset)
        elif isinstance(effect, Restart):
            self.restart(owner)
        else:
            self.take_away(owner, effect)

    def take_away(self, owner: Owner, effect: Effect) -> None:
        if isinstance(effect, Stop | Withdraw):
            for runner in owner.runners:
                if runner.lease in effect.leases:
                    runner.stopped = True
                    runner.withdrawn = runner.withdrawn or isinstance(effect, Withdraw)

    def begin_transaction(self, owner: Owner, effect: StoreMoves) -> None:
        assert owner.commit is None, "a transaction beside a plain commit"
        assert owner.transaction is None, "two transactions"
        if any(record.dead for record in effect.records):
            assert owner.written is not None, "dead letters that aren't written"
            assert effect.records == owner.written.records, "other dead letters than those that are written"
            owner.written = None
        owner.transaction = Transaction(owner, effect)
        owner.made_since = owner.doubts
        self.transactions.append(owner.transaction)

    def delivered(self, owner: Owner, lease: Lease) -> None:
        assert not owner.doubts, f"since: {lease} begins"
        if lease.key is not None:
            for other in owner.runners + self.lingering:
                assert other.lease.key != lease.key or other.owner.process != owner.process, "I1: two holders"
        runner = Runner(owner, lease)
        if lease is owner.partition._leases.inline_lease:
            owner.inline = runner
        else:
            owner.runners.append(runner)

    # The log

    def fetch(self, owner: Owner) -> None:
        batch = [m for m in self.main if m.offset() >= owner.read_main][: self.random.randint(1, 8)]
        half = owner.partition._retry_partition
        if batch and not (
            half.retries.copies.possible and not owner.caught_up
        ):  # newer copies are known by then
            owner.read_main = batch[-1].offset() + 1
            inline = self.plan.inline and self.chance(0.5)
            self.do_inline(owner, Fetched(batch, inline))

    def fetch_retry(self, owner: Owner) -> None:
        batch = self.visible(owner.read_retry)[: self.random.randint(1, 6)]
        if batch:
            owner.read_retry = batch[-1].offset() + 1
            for record in batch:
                info = decode((record.headers() or [("", None)])[-1][1])
                if isinstance(info, RetryInfo) and info.due < FOREVER:
                    longest = LONGEST_DELAY if info.why is Why.DELAYED else LATEST
                    owner.due[info.origin] = min(info.due / 1000 - WALL - owner.wrong_by, self.now + longest)
            self.do(owner, RetryFetched(batch))
        if not self.visible(owner.read_retry):
            owner.read_retry = max(owner.read_retry, self.last_stable())
        if owner.caught_up:
            self.do(owner, ReadUpTo(owner.read_main, owner.read_retry))
        elif owner.read_retry >= owner.end:
            owner.caught_up = True
            self.do(owner, RetryCaughtUp(owner.read_retry))

    def answer_bodies(self, owner: Owner) -> None:
        asked, owner.asked = owner.asked or [], None
        some = [offset for offset in asked if not self.chance(0.2)]
        records = [record for record in self.visible(0) if record.offset() in some]
        there = {record.offset() for record in records}
        self.do(owner, Bodies(records, [offset for offset in some if offset not in there]))

    # Commits and transactions

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
        owner.doubts = owner.doubts and not (accepted and owner.made_since)
        self.do(owner, CommitAnswered(accepted))

    def step_transaction(self, each: Transaction) -> None:
        """A single step of a transaction: append, decide, answer; markers come by themselves."""
        owner = each.owner
        if each.state == "sent":
            for other in [other for other in self.transactions if other.owner is owner and other is not each]:
                self.show(other)  # a producer's next transaction waits for its last one's markers
            self.append(each)
        elif each.state == "appended":
            self.decide(each)
        elif owner.transaction is each:
            self.answer(each)
        if self.calm:
            self.show(each)

    def answer(self, each: Transaction) -> None:
        owner = each.owner
        assert isinstance(owner, Owner)
        owner.transaction = None
        ending = Ending.STORED if each.committed else Ending.ABORTED
        if self.chance(self.plan.unknown):
            ending = Ending.UNKNOWN
        owner.doubts = owner.doubts and not (ending is Ending.STORED and owner.made_since)
        self.do(owner, MovesAnswered(ending, each.refused, each.checkpoint if each.committed else None))

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
        self.do(owner, Revoked(closing=self.generation % 3 == 0))
        self.quiet(owner)
        if owner is not self.owner:
            return
        same = owner.partition._commits.stored == self.stored
        for each in list(self.transactions):
            if each.owner is owner:
                self.show(each)
        if same and self.chance(0.6):
            owner.asked = None  # a read that was on its way is dropped, and asked for again
            self.do(owner, Returned())
            for runner in owner.runners:
                runner.stopped = runner.stopped and runner.running
        else:
            self.do(owner, Lost())
            self.restart(owner)

    def stand_still(self, owner: Owner) -> None:
        """The owner's process finds that it stood still: leases that haven't begun are taken back, and it says so."""
        self.say("stood still")
        owner.doubts, owner.made_since, owner.asked = True, False, None
        for runner in owner.runners:
            runner.stopped = True
        self.do(owner, Returned())

    def named(self) -> Named | None:
        """The checkpoint that the last commit names."""
        found = ack_map.decode(self.stored.retry.metadata, self.stored.retry.offset)
        return None if found is None else found.checkpoint

    def step(self) -> None:
        """Something happens."""
        if self.chance(self.plan.crashes * (self.plan.after_checkpoints if self.named() is not None else 1)):
            self.crash(stall=self.chance(self.plan.stalls))
        elif self.chance(self.plan.forgets):
            self.forget()
        elif self.chance(0.01):
            self.revoke()
        elif self.plan.doubts and self.chance(self.plan.doubts):
            self.stand_still(self.owner)
        elif self.plan.clock_steps and self.chance(self.plan.clock_steps):
            self.wrong_by = self.random.choice([0.0, 20.0, -20.0])
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
                self.move_callback,
            ]
            self.random.choices(acts, (5, 5, 10, 10, 12, 12, 18, 28))[0](owner)

    def publish_one(self, owner: Owner) -> None:
        self.publish()

    def demand(self, owner: Owner) -> None:
        if owner.partition.deliverable:
            inline = self.plan.inline and self.chance(0.3)
            limit, run = self.random.randint(1, 4), self.random.randint(1, 4)
            self.do_inline(owner, Demand(limit, run, inline=inline))

    def pass_time(self, owner: Owner) -> None:
        self.now += self.random.choice([0.01, 0.01, 0.2, 0.2, 1.5, 5.0])
        self.tick(owner)

    def answer_one(self, owner: Owner) -> None:
        if owner.commit is not None:
            self.step_commit(owner)
        elif owner.asked is not None:
            self.answer_bodies(owner)
        elif owner.dead_lettering is not None:
            self.write_dead_letters(owner, owner.dead_lettering)

    def write_dead_letters(self, owner: Owner, store_dead_letter: WriteDeadLetters) -> None:
        """The log takes dead letters, or it doesn't, with or without saying for which of them."""
        owner.dead_lettering = None
        if not self.chance(self.plan.aborts):
            owner.written = store_dead_letter
            self.do(owner, Written(True))
        elif self.chance(0.5):
            self.do(owner, Written(False, reason="no answer"))
        else:
            self.do(
                owner, Written(False, {self.random.randrange(len(store_dead_letter.records)): "too large"})
            )

    def transact(self, owner: Owner) -> None:
        if self.transactions:
            each = self.random.choice(self.transactions)
            (self.show if each.owner.transaction is not each else self.step_transaction)(each)

    def tick(self, owner: Owner) -> None:
        steps = [
            Progress(runner.lease, runner.at, runner.started + owner.shift)
            for runner in owner.runners
            if runner.running and not runner.kept
        ]
        self.do(owner, Progressed(steps))
        if self.plan.clock_steps:
            owner.wrong_by = self.wrong_by
        self.do(owner, Tick(wall=WALL - owner.shift + owner.wrong_by if self.plan.clock_steps else None))
        owner.runners = [runner for runner in owner.runners if not (runner.kept and runner.withdrawn)]

    def move_callback(self, owner: Owner) -> None:
        runners = owner.runners + (self.lingering if owner is self.owner else [])
        if runners:
            self.walk(self.random.choice(runners))

    def run(self, steps: int) -> None:
        """Faults for a while; then everything settles."""
        for _ in range(steps):
            self.step()
        self.settle()

    def settle(self) -> None:
        self.calm = True
        while len(self.main) < self.plan.messages:
            self.publish()
        for _ in range(9000):
            if self.settled():
                return
            self.step()
            if self.random.random() < 0.05:
                self.now += 10.0
        unfinished = {m.offset() for m in self.main} - self.acked - self.dead.keys()
        raise AssertionError(
            f"lost: {unfinished} of {len(self.main)}, {self.owner.partition._commits.stored}"
        )

    def settled(self) -> bool:
        """Everything is acked, dead, parked for ever, or behind such a message; and the log knows it."""
        waiting = self.waiting_by(self.stored) if self.stored.metadata else {0}
        blocked: set[int] = set()
        for origin in waiting:
            if self.due.get(origin, 0) >= FOREVER:
                key = next(m.key() for m in self.main if m.offset() == origin)
                later = {m.offset() for m in self.main if m.key() == key and m.offset() >= origin}
                blocked |= later if key is not None and self.plan.ordered else {origin}
        left = (
            {m.offset() for m in self.main} - self.finished_by(self.stored) if self.stored.metadata else {0}
        )
        done = self.acked | self.dead.keys() | blocked
        return waiting | left <= blocked and {m.offset() for m in self.main} <= done
