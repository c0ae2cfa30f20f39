"""Acks whose answer somebody waits for, against books that know nothing of waiting: the stored state, read as text.

Two worlds: a partition without a retry topic, driven by Hypothesis, and a partition with it, by random schedules over a
small Kafka. In both some acks are waited for, mostly while their handlers still run.

Promised
  durable  nobody is told so before the stored map calls the record finished (and then the record never begins again)
  late      who is told that his ack came too late or is gone gets the message again
  answered  once all is settled nobody waits
Each rule of `durable_acks` is taken out in turn; somebody must notice.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kafka_pubsub.subscribe.formats.record import RetryRecord
from kafka_pubsub.subscribe.partition.durable_acks import Durability
from kafka_pubsub.subscribe.partition.effects import Durable, Effect, Unstored
from kafka_pubsub.subscribe.partition.events import Ask, Awaited, LeaseOutcome, Lost
from kafka_pubsub.subscribe.partition.lease_outcomes import LeaseReports
from tests.property.retry_callbacks import Owner, Runner
from tests.property.retry_world import Plan, World
from tests.property.waiting import Handler, PromptMachine, Waiter, WaitingMachine, tell
from tests.support import FakeBody

TestWaiting = WaitingMachine.TestCase
TestWaiting.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestPrompt = PromptMachine.TestCase
TestPrompt.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


class WaitingWorld(World):
    """A retry topic, take-overs, stalled owners, and handlers some of which wait for their acks."""

    def __init__(self, random: Random, plan: Plan) -> None:
        self.asked: dict[Runner, Waiter] = {}
        self.durable_acks = 0
        super().__init__(random, plan)

    def obey(self, owner: Owner, effect: Effect) -> None:
        super().obey(owner, effect)
        for waiter in tell(effect):
            if isinstance(waiter.told, Durable):
                self.durable_acks += 1
                assert waiter.offset in self.durable, (
                    f"{waiter.offset} is told to be durable, and isn't stored"
                )
            elif waiter.told is Unstored.GONE and owner is self.owner:
                assert waiter.offset not in self.durable, f"{waiter.offset} is stored, and called gone"

    def walk(self, runner: Runner) -> None:
        waits = runner.running and not runner.kept and runner not in self.lingering
        if waits and runner not in self.asked and not runner.withdrawn and self.random.random() < 0.5:
            self.ask(runner)
        elif runner in self.asked:
            self.go_on(runner)
        else:
            super().walk(runner)

    def ask(self, runner: Runner) -> None:
        record = runner.record
        assert isinstance(record, FakeBody | RetryRecord)
        waiter = self.asked[runner] = Waiter(record.offset())
        self.do(runner.owner, Awaited([Ask(runner.lease, record, waiter)]))
        assert waiter.told is not Unstored.LATE
        self.ack(runner.owner, record)

    def go_on(self, runner: Runner) -> None:
        """The handler has its answer, or is tired of waiting."""
        del self.asked[runner]
        if runner in self.lingering:
            super().walk(runner)
            return
        runner.at += 1
        runner.running = False
        if runner.withdrawn or runner.at == len(runner.lease.records):
            whole = runner.at == len(runner.lease.records)
            self.let_go(runner, LeaseOutcome.FINISHED if whole else LeaseOutcome.UNTOUCHED)


PLANS = {
    "everything": Plan(),
    "many_nacks": Plan(nacks=0.5, crashes=0.002),
    "unordered": Plan(ordered=False, inline=False),
}


def schedules(seeds: int, plan: Plan) -> int:
    told = 0
    for seed in range(seeds):
        world = WaitingWorld(Random(seed), plan)
        world.run(700)
        told += world.durable_acks
    return told


@pytest.mark.parametrize("name", PLANS)
def test_promises_hold_with_a_retry_topic(name: str) -> None:
    assert schedules(8, PLANS[name]) > 20


# Scenes


def waiting(ends: bool = False) -> tuple[WaitingMachine, Handler]:
    """Somebody waits for the ack of the single message that there is; perhaps its handler has returned before."""
    machine = WaitingMachine()
    machine.publish([b"a"], 0)
    machine.fetch_all()
    machine.demand(limit=1, run=1, spread=False)
    (runner,) = machine.runners
    runner.began = True
    if ends:
        machine.release(runner, LeaseOutcome.KEPT)
    else:
        assert machine.ask(runner.lease, runner.lease.records[0])
        machine.acked.add(0)
    return machine, runner


def test_a_waiter_is_reported_that_no_answer_comes() -> None:
    machine, _ = waiting()
    machine.wait(25.0)
    assert machine.answers() == [None]
    machine.wait(11.0)
    assert machine.waiters[0].told is Unstored.UNANSWERED
    machine.settle_commit(accepted=True)
    assert machine.durable == {0}, "the ack itself isn't forgotten"


def test_what_is_in_no_commit_is_gone_with_the_partition() -> None:
    machine, _ = waiting()
    machine.do(Lost())
    assert machine.waiters[0].told is Unstored.GONE


def test_of_a_commit_without_an_answer_nobody_can_say() -> None:
    machine, _ = waiting()
    machine.wait(0.2)
    machine.answer_lost()
    assert machine.answers() == [None], "it is in the next one too"
    machine.do(Lost())
    assert machine.waiters[0].told is Unstored.UNKNOWN


def test_what_comes_after_a_commit_was_made_waits_for_the_next() -> None:
    machine, _ = waiting()
    machine.wait(0.2)
    machine.publish([b"b"], 0)
    machine.fetch_all()
    machine.demand(limit=1, run=1, spread=False)
    second = machine.runners[-1]
    assert machine.ask(second.lease, second.lease.records[0])
    machine.acked.add(1)
    machine.settle_commit(accepted=True)
    assert machine.answers() == [True, None]
    machine.wait(0.2)
    machine.settle_commit(accepted=True)
    assert machine.answers() == [True, True]


def test_a_run_counts_when_it_has_reported_of_itself() -> None:
    machine = WaitingMachine()
    machine.fetch_inline(keys=[b"a", b"b"], count=3)
    machine.inline_asks(late=False)
    machine.partition._commits.dirty = True  # whatever else there is to say
    machine.wait(0.2)
    machine.settle_commit(accepted=True)
    assert machine.answers() == [None]
    machine.end_inline(current=False)
    machine.wait(0.2)
    machine.settle_commit(accepted=True)
    assert machine.answers() == [True]


def test_an_ack_after_the_deadline_is_late() -> None:
    machine, runner = waiting(ends=True)
    machine.wait(11.0)
    assert not machine.ask(runner.lease, runner.lease.records[0])
    assert machine.waiters[0].told is Unstored.LATE


def test_commits_hurry_while_acks_wait_and_share() -> None:
    machine = PromptMachine()
    machine.publish([b"a", b"b", b"c"], 0)
    machine.fetch_all()
    machine.demand(limit=3, run=1, spread=False)
    machine.now = 100.0
    first, *others = machine.runners
    ask_for(machine, first)
    machine.wait(0.01)
    assert machine.unanswered
    machine.settle_commit(accepted=True)
    times = []
    for runner in others:
        ask_for(machine, runner)
        machine.now += 0.0005
        times.append(machine.partition.wakeup_at())
    assert times[0] == times[1]
    assert machine.now < (times[0] or 0.0) < machine.now + 0.005
    machine.wait(0.01)
    machine.settle_commit(accepted=True)
    assert machine.durable == {0, 1, 2}
    assert machine.answers() == [True] * 3


def ask_for(machine: WaitingMachine, runner: Handler) -> None:
    runner.began = True
    assert machine.ask(runner.lease, runner.lease.records[0])
    machine.acked.add(runner.first)


SCENES = (
    test_a_waiter_is_reported_that_no_answer_comes,
    test_what_is_in_no_commit_is_gone_with_the_partition,
    test_of_a_commit_without_an_answer_nobody_can_say,
    test_what_comes_after_a_commit_was_made_waits_for_the_next,
    test_a_run_counts_when_it_has_reported_of_itself,
    test_an_ack_after_the_deadline_is_late,
    test_commits_hurry_while_acks_wait_and_share,
)

# The test of the test

SEARCH = settings(
    max_examples=400,
    stateful_step_count=60,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def reported_at_the_ack(patch: pytest.MonkeyPatch) -> None:
    """The future resolves when the ack is booked."""
    real = Durability._take

    def take(self: Durability, ask: Ask, since: float) -> None:
        before = self.waiting
        real(self, ask, since)
        if self.waiting > before:
            for some in (self._booked, self._ended_inline):
                if some:
                    some.pop()
            self._answers.append(Durable([ask.waiter]))

    patch.setattr(Durability, "_take", take)


def reported_when_sent(patch: pytest.MonkeyPatch) -> None:
    """The future resolves when the commit is made, not when the commit was accepted."""
    real = Durability._made

    def made(self: Durability) -> None:
        real(self)
        self._answered(True)

    patch.setattr(Durability, "_made", made)


def refusal_resolves(patch: pytest.MonkeyPatch) -> None:
    """A commit that was refused settles its acks."""
    real = Durability._answered
    patch.setattr(Durability, "_answered", lambda self, accepted: real(self, True))


def crossing_commit_resolves(patch: pytest.MonkeyPatch) -> None:
    """The answer to a commit settles acks that came after the commit was made."""
    real = Durability._answered

    def answered(self: Durability, accepted: bool) -> None:
        self._made()
        real(self, accepted)

    patch.setattr(Durability, "_answered", answered)


def run_counts_at_once(patch: pytest.MonkeyPatch) -> None:
    """An ack in a walk counts as booked, though the books don't know the ack."""
    real = Durability._take

    def take(self: Durability, ask: Ask, since: float) -> None:
        real(self, ask, since)
        self._booked += [(each.waiter, since) for each, _ in self._ended_inline]
        self._ended_inline.clear()

    patch.setattr(Durability, "_take", take)
    patch.setattr(Durability, "check", lambda self: None)


def doubtful_is_gone(patch: pytest.MonkeyPatch) -> None:
    """An owner that loses the partition calls acks gone that may be stored."""
    real = Durability.lost

    def lost(self: Durability) -> None:
        self._booked += (*self._doubtful, *self._sent)
        self._doubtful.clear()
        self._sent.clear()
        real(self)

    patch.setattr(Durability, "lost", lost)


def late_acks_count(patch: pytest.MonkeyPatch) -> None:
    """An ack under a lease that is over counts."""
    real = LeaseReports.acked
    patch.setattr(LeaseReports, "acked", lambda self, lease, record: real(self, lease, record) or True)


def lost_is_silent(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told that the partition is gone."""
    patch.setattr(Durability, "lost", lambda self: None)


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    each.__name__: each
    for each in (
        reported_at_the_ack,
        reported_when_sent,
        refusal_resolves,
        crossing_commit_resolves,
        run_counts_at_once,
        doubtful_is_gone,
        late_acks_count,
        lost_is_silent,
    )
}


def scenes_and_search() -> None:
    for scene in SCENES:
        scene()
    run_state_machine_as_test(WaitingMachine, settings=SEARCH)


@pytest.mark.parametrize("name", BREAKS)
def test_each_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BREAKS[name](monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        scenes_and_search()


@pytest.mark.parametrize("name", ["reported_at_the_ack", "reported_when_sent", "crossing_commit_resolves"])
def test_each_rule_is_needed_with_a_retry_topic(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BREAKS[name](monkeypatch)
    with pytest.raises(AssertionError):
        schedules(60, PLANS["everything"])
