"""The whole core: a single partition driven by everything that can happen, against a naive model.

The machine plays the shell: it reads a log, hands leases to holders that do anything holders may do, answers
commits and transactions (or crashes before), loses and regains the partition. Its retry partition is read at once
(`retry_world` delays this). Time is a number.

Promised
  I1  a single record of a key with a handler at a time; a redelivery comes before its successors
  I2  nothing below the committed position is unfinished
  I3  a record is in a single place (Partition.check)
  I4  a report on a lease that is over changes nothing
  I5  finished messages can always be committed
  lost  when all handlers ack, everything is finished
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.partition.effects import (
    CommitBoth,
    Deliver,
    Effect,
    ReadBodies,
    Stop,
    StoreMoves,
    Withdraw,
)
from kafka_pubsub.subscribe.partition.events import (
    Bodies,
    CommitAnswered,
    Demand,
    Ended,
    Event,
    Extended,
    Fetched,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    Lost,
    MovesAnswered,
    Passed,
    Progress,
    Progressed,
    ReadUpTo,
    RetryCaughtUp,
    RetryFetched,
    Returned,
    Revoked,
    Settled,
    Tick,
)
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.settings import Backoff, Rules, Start
from tests.partition_ids import P
from tests.property.lease_runners import Inline, Runner
from tests.property.two_logs import TwoLogs
from tests.support import FakeBody

KEYS = [b"a", b"b", b"c", None]


class PartitionMachine(TwoLogs, RuleBasedStateMachine):
    """Plays shell, log and handlers."""

    ordered = True
    exactly_once = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.read_to = self.retry_read = 0
        self.runners: list[Runner] = []
        self.lingering: list[Runner] = []
        self.inline: Inline | None = None
        self.epoch = 0
        #: Whether a commit is in flight; with its transaction, if it has one.
        self.unanswered = False
        self.move_request: StoreMoves | None = None
        self.begin(())

    def begin(self, held_back: tuple[bytes, ...]) -> None:
        """A new ownership, whose retry partition is read at once."""
        self.epoch += 1
        found = self.found(self.epoch)
        rules = Rules(
            self.ordered,
            ack_deadline=10,
            max_extension=20,
            backoff=Backoff(1, 4),
            exactly_once=self.exactly_once,
        )
        start = Start(P[0], self.epoch, 42, self.stored, found, held_back)
        self.partition = Partition(start, rules, lambda: 0.5)
        self.read_to = self.partition._offsets.position
        self.retry_read = found.retry.position
        self.unanswered, self.move_request = False, None
        self.feed()
        self.do(RetryCaughtUp(self.retry_read))
        self.do(Tick())
        self.settle_commit(accepted=True)

    def feed(self) -> None:
        """The retry partition is read on to its end."""
        news = self.retry[self.retry_read :]
        self.retry_read = max(self.retry_read, len(self.retry))
        if news:
            self.do(RetryFetched(news))

    def do(self, event: Event) -> None:
        self.obey(self.partition.handle(event, self.now))

    def obey(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self.obey_one(effect)

    def obey_one(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            for lease in effect.leases:
                self.delivered(lease)
        elif isinstance(effect, CommitBoth | StoreMoves):
            assert not self.unanswered, "two commits in flight"
            self.unanswered = True
            self.move_request = effect if isinstance(effect, StoreMoves) else None
            if isinstance(effect, CommitBoth):
                self.claimed(effect)
        elif isinstance(effect, ReadBodies):
            self.do(Bodies([self.retry[offset] for offset in effect.offsets]))
        elif isinstance(effect, Stop | Withdraw):
            for runner in self.runners:
                if runner.lease in effect.leases:
                    runner.stopped = True
                    runner.withdrawn = runner.withdrawn or isinstance(effect, Withdraw)

    def delivered(self, lease: Lease) -> None:
        offsets = [record.offset() for record in lease.records]
        assert offsets == sorted(offsets)
        if lease.key is not None:
            assert all(w.lease.key != lease.key for w in self.runners + self.lingering), "I1: two holders"
            below = [o for o, key in self.log if key == lease.key and o < offsets[0]]
            assert all(o in self.acked for o in below), "order: an earlier message of the key isn't acked"
            mine = [o for o, key in self.log if key == lease.key and offsets[0] <= o <= offsets[-1]]
            assert [o for o in mine if o not in self.durable] == [o for o in offsets if o not in self.durable]
        assert not set(offsets) & self.durable, "delivered after a durable ack"
        self.runners.append(Runner(lease, offsets[0], offsets=offsets))

    # The log

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8), hole=st.sampled_from([0, 0, 0, 2]))
    def publish(self, keys: list[bytes | None], hole: int) -> None:
        self.next += hole
        for key in keys:
            self.log.append((self.next, key))
            self.next += 1

    @precondition(lambda self: self.partition.open and self.read_to < self.next and not self.inline)
    @rule(count=st.integers(1, 10))
    def fetch(self, count: int) -> None:
        batch = [FakeBody(10, o, key) for o, key in self.log if o >= self.read_to][:count]
        if batch:
            self.read_to = batch[-1].offset() + 1
            self.do(Fetched(batch))

    @precondition(lambda self: self.partition.open and not self.inline)
    @rule(markers=st.integers(0, 3))
    def reach_the_end(self, markers: int) -> None:
        if not any(offset >= self.read_to for offset, _ in self.log):
            self.next += markers
            self.read_to = max(self.read_to, self.next)
            self.do(ReadUpTo(self.next, self.retry_read))

    # Inline: the fetcher takes the records of its read

    @precondition(lambda self: self.partition.open and not self.inline)
    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=2, max_size=8), count=st.integers(3, 12))
    def fetch_inline(self, keys: list[bytes | None], count: int) -> None:
        self.publish(keys, 0)
        batch = [FakeBody(10, o, key) for o, key in self.log if o >= self.read_to][:count]
        self.read_to = batch[-1].offset() + 1
        effects = self.partition.handle(Fetched(batch, inline=True), self.now)
        if not effects:
            return
        (effect,) = effects
        assert isinstance(effect, Deliver)
        (lease,) = effect.leases
        offsets = [record.offset() for record in lease.records]
        assert offsets == sorted(offsets)
        assert (lease.key, lease.attempt) == (None, 1)
        assert not set(offsets) & (self.durable | self.acked), "delivered after an ack"
        busy = {runner.lease.key for runner in self.runners + self.lingering if runner.lease.key is not None}
        assert not busy & {record.key() for record in lease.records}, "I1: two holders"
        for key in {record.key() for record in lease.records} - {None} if self.ordered else ():
            first = min(record.offset() for record in lease.records if record.key() == key)
            assert all(o in self.acked for o, k in self.log if k == key and o < first), "order"
        self.inline = Inline(lease, list(lease.records))

    def inline_next(self) -> Record | None:
        """The record that the walking thread begins next; records behind a left record are passed over."""
        assert self.inline is not None
        while self.inline.reached < len(self.inline.records):
            record = self.inline.records[self.inline.reached]
            if record.key() not in self.inline.skip:
                return record
            self.inline.skipped.append(record)
            self.inline.reached += 1
        return None

    @precondition(lambda self: self.inline)
    @rule(
        outcomes=st.lists(
            st.sampled_from([LeaseOutcome.FINISHED, LeaseOutcome.NACKED, LeaseOutcome.KEPT]),
            min_size=1,
            max_size=5,
        ),
        delay=st.sampled_from([None, 3.0]),
        early=st.sampled_from([None, None, True, False]),
    )
    def inline_steps(self, outcomes: list[LeaseOutcome], delay: float | None, early: bool | None) -> None:
        """Some callbacks. `early`: the word about a left record overtakes the end of the walk."""
        for outcome in outcomes:
            self.inline_step(outcome, delay, early)

    def inline_step(self, outcome: LeaseOutcome, delay: float | None, early: bool | None) -> None:
        walk = self.inline
        assert walk is not None
        if (record := self.inline_next()) is None:
            return
        walk.reached += 1
        if outcome is LeaseOutcome.FINISHED:
            walk.acked.add(record.offset())
            return
        key = record.key() if self.ordered else None
        release = LeaseReport(Lease(P[0], self.epoch, key, [record], 1), 0, outcome, delay)
        walk.left.append(release)
        if key is not None:
            walk.skip.add(key)
        if outcome is LeaseOutcome.KEPT:
            self.runners.append(Runner(release.lease, record.offset(), kept=True, offsets=[record.offset()]))
            if early is not None:
                self.do(Settled([Settlement(release.lease, 0, early, delay)]))
                self.runners.pop()
                self.acked |= {record.offset()} if early else set()

    @precondition(lambda self: self.inline)
    @rule(whole=st.booleans(), current=st.booleans(), began=st.booleans())
    def inline_ends(self, whole: bool, current: bool, began: bool) -> None:
        """At its end, or taken over in the middle, between two records or with a record at its handler."""
        while whole and self.inline_next() is not None:
            self.inline_step(LeaseOutcome.FINISHED, None, None)
        self.end_inline(current, began=began)

    def end_inline(self, current: bool, *, began: bool = True) -> None:
        walk, record = self.inline, self.inline_next()
        assert walk is not None
        current = current and record is not None
        self.acked |= walk.acked
        self.inline = None
        self.do(Passed(walk.lease, walk.reached, walk.left, walk.skipped, current))
        if current and record is not None:
            assert [each.offset() for each in walk.lease.records] == [record.offset()]
            assert walk.lease.key == (record.key() if self.ordered else None)
            runner = Runner(walk.lease, record.offset(), offsets=[record.offset()])
            runner.began, runner.started = began, self.now
            self.runners.append(runner)

    # Handlers

    @rule(limit=st.integers(1, 5), run=st.integers(1, 4), spread=st.booleans())
    def demand(self, limit: int, run: int, spread: bool) -> None:
        before = len(self.runners)
        self.do(Demand(limit, run, spread))
        assert len(self.runners) - before <= limit
        assert self.partition.open or len(self.runners) == before

    def pick(self, data: st.DataObject, *, kept: bool = False) -> Runner | None:
        some = [runner for runner in self.runners + self.lingering if runner.kept == kept]
        return data.draw(st.sampled_from(some)) if some else None

    @rule(data=st.data())
    def callback_acks(self, data: st.DataObject) -> None:
        """The current record is acked and its handler ends; the holder goes on unless it was stopped."""
        runner = self.pick(data)
        if runner is None or (not runner.began and runner.stopped):
            return
        if runner.withdrawn:
            self.release(runner, LeaseOutcome.NACKED)  # the ack is late
            return
        self.acked.add(runner.offsets[runner.acked])
        runner.acked += 1
        runner.began = False
        if runner.acked == len(runner.offsets):
            self.release(runner, LeaseOutcome.FINISHED)

    @rule(data=st.data())
    def callback_begins(self, data: st.DataObject) -> None:
        runner = self.pick(data)
        if runner is not None and not runner.stopped and not runner.began:
            runner.began, runner.started = True, self.now

    @rule(
        data=st.data(),
        outcome=st.sampled_from([LeaseOutcome.NACKED, LeaseOutcome.KEPT]),
        delay=st.sampled_from([None, 3.0]),
    )
    def handler_ends(self, data: st.DataObject, outcome: LeaseOutcome, delay: float | None) -> None:
        runner = self.pick(data)
        if runner is not None and runner.began:
            self.release(runner, outcome, delay)

    @rule(data=st.data())
    def lease_runner_stops(self, data: st.DataObject) -> None:
        runner = self.pick(data)
        if runner is not None and runner.stopped and not runner.began:
            self.release(runner, LeaseOutcome.UNTOUCHED)

    def release(self, runner: Runner, outcome: LeaseOutcome, delay: float | None = None) -> None:
        release = LeaseReport(runner.lease, runner.acked, outcome, delay)
        lingered = runner in self.lingering
        if outcome is LeaseOutcome.KEPT and not runner.withdrawn:
            runner.kept = True
        else:
            (self.lingering if lingered else self.runners).remove(runner)
        if lingered:
            self.do(Ended([runner.lease.key] if runner.lease.key is not None else []))
        self.do(LeasesReported([release]))

    @rule(data=st.data(), acked=st.booleans())
    def report_later(self, data: st.DataObject, acked: bool) -> None:
        runner = self.pick(data, kept=True)
        if runner is None:
            return
        self.runners.remove(runner)
        if runner.withdrawn:
            self.do(Settled([Settlement(runner.lease, runner.acked, acked)]))
            return
        if acked:
            self.acked.add(runner.offsets[runner.acked])
        self.do(Settled([Settlement(runner.lease, runner.acked, acked)]))

    @rule(data=st.data(), seconds=st.sampled_from([1.0, 30.0]), kept=st.booleans())
    def extend(self, data: st.DataObject, seconds: float, kept: bool) -> None:
        runner = self.pick(data, kept=kept)
        if runner is not None and (runner.began or kept):
            self.do(Extended(runner.lease, runner.acked, seconds))

    # Time and commits

    @rule(seconds=st.sampled_from([0.01, 0.2, 2.0, 11.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.do_progress()
        self.do(Tick())
        self.runners = [runner for runner in self.runners if not (runner.kept and runner.withdrawn)]

    def do_progress(self) -> None:
        for runner in self.runners:
            if runner.began and not runner.kept:
                self.do(Progressed([Progress(runner.lease, runner.acked, runner.started)]))

    @precondition(lambda self: self.unanswered)
    @rule(accepted=st.sampled_from([True, True, False]))
    def answer(self, accepted: bool) -> None:
        self.settle_commit(accepted)

    def settle_commit(self, accepted: bool) -> None:
        commit, move_request = self.partition._commits.in_flight, self.move_request
        self.unanswered, self.move_request = False, None
        if move_request is None:
            if accepted and commit is not None:
                self.store(commit)
            self.do(CommitAnswered(accepted))
        elif accepted:
            self.do(MovesAnswered(Ending.STORED, checkpoint=self.take(move_request)))
            self.feed()
        else:
            self.do(MovesAnswered(Ending.ABORTED))

    # Ownership. The thread that says so isn't walking any more: whoever closes has taken over before.

    def end_inline_lease(self) -> None:
        if self.inline is not None:
            self.end_inline(current=True)

    @precondition(lambda self: self.partition.open)
    @rule(accepted=st.booleans())
    def revoke(self, accepted: bool) -> None:
        self.end_inline_lease()
        if self.unanswered:
            self.settle_commit(accepted)
        self.do(Revoked())
        while self.unanswered:
            self.settle_commit(accepted)

    @precondition(lambda self: not self.partition.open and self.partition._commits.stored == self.stored)
    @rule()
    def come_back(self) -> None:
        self.do(Returned())

    @precondition(lambda self: not self.partition.open)
    @rule()
    def come_back_anew(self) -> None:
        running = [runner for runner in self.runners if not runner.kept]
        self.do(Lost())
        assert all(runner.withdrawn for runner in self.runners)
        self.lingering += running
        self.runners = []
        self.replace()

    def replace(self) -> None:
        # acks that the log never learned of are lost with the ownership: those messages come again
        self.acked &= self.durable
        self.begin(tuple(w.lease.key for w in self.lingering if w.lease.key is not None))

    @rule()
    def crash(self) -> None:
        self.runners, self.lingering, self.inline = [], [], None
        self.replace()

    @invariant()
    def promises_hold(self) -> None:
        self.partition.check()
        wake = self.partition.wakeup_at()
        assert wake is None or wake == self.partition.wakeup_at()

    def teardown(self) -> None:
        """However the partition came to this: handlers that ack finish everything."""
        self.end_inline_lease()
        if not self.partition.open:
            self.do(Lost())
            self.runners, self.lingering = [], []
            self.replace()
        for runner in self.runners + self.lingering:
            if not runner.kept and runner.withdrawn:
                self.release(runner, LeaseOutcome.NACKED)
        for _ in range(len(self.log) * 4 + 20):
            self.now += 30
            self.do(Tick())
            while self.unanswered:
                self.settle_commit(accepted=True)
            self.runners = [w for w in self.runners if not (w.kept and w.withdrawn)]
            self.fetch_all()
            self.do(ReadUpTo(self.next, self.retry_read))
            self.do(Demand(100, 100))
            for runner in [w for w in self.runners if not w.kept]:
                self.acked.update(runner.offsets[runner.acked :])
                runner.acked = len(runner.offsets)
                self.release(runner, LeaseOutcome.FINISHED)
            self.partition.check()
        assert self.acked >= {o for o, _ in self.log}, "lost"
        assert self.stored.offset == self.next, "a lag although all is acked"

    def fetch_all(self) -> None:
        batch = [FakeBody(10, o, key) for o, key in self.log if o >= self.read_to]
        if batch:
            self.read_to = batch[-1].offset() + 1
            self.do(Fetched(batch))


class UnorderedMachine(PartitionMachine):
    """The same without an order: only promises that aren't about keys hold."""

    ordered = False

    @initialize()
    def unordered(self) -> None:
        assert not self.partition._queues.queues


TestPartition = PartitionMachine.TestCase
TestPartition.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


class LongPartitionMachine(PartitionMachine):
    """The same, for the slow suite: with more examples."""


TestLongPartition = pytest.mark.slow(LongPartitionMachine.TestCase)
TestLongPartition.settings = settings(max_examples=400, stateful_step_count=60, deadline=None)
TestUnorderedPartition = UnorderedMachine.TestCase
TestUnorderedPartition.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
