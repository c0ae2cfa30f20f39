"""Handlers that ack and wait for the answer: the machine of `test_partition`, with books of who waits for which ack."""

from __future__ import annotations

from typing import cast

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.effects import Durable, Effect, Undone, Unstored
from kafka_pubsub.subscribe.partition.events import (
    Ask,
    Awaited,
    CommitAnswered,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
)
from kafka_pubsub.subscribe.partition.leases import Lease
from tests.property.lease_runners import Runner as Handler
from tests.property.test_partition import PartitionMachine

__all__ = ["Handler", "PromptMachine", "Waiter", "WaitingMachine", "tell"]


class Waiter:
    """Somebody who waits for the ack of a record."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.told: Durable | Unstored | None = None

    def tell(self, what: Durable | Unstored) -> None:
        assert self.told is None, f"{self.offset} is told twice: {self.told}, {what}"
        self.told = what


def tell(effect: Effect) -> list[Waiter]:
    """Tells the callers that the effect is for."""
    if not isinstance(effect, Durable | Undone):
        return []
    waiters = cast("list[Waiter]", list(effect.waiters))
    for waiter in waiters:
        waiter.tell(effect if isinstance(effect, Durable) else effect.why)
    return waiters


class WaitingMachine(PartitionMachine):
    """Handlers that ack and wait for the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.waiters: list[Waiter] = []
        #: Handlers whose current record was acked so, and which still run.
        self.asked: set[Handler] = set()
        #: Asks that are heard of only when the walk in which they were made has told of itself.
        self.delayed: list[Ask] = []

    def obey_one(self, effect: Effect) -> None:
        super().obey_one(effect)
        for waiter in tell(effect):
            if waiter.told is Unstored.GONE:
                assert waiter.offset not in self.durable, f"{waiter.offset} is stored, and called gone"
            elif isinstance(waiter.told, Durable):
                assert waiter.offset in self.durable, (
                    f"{waiter.offset} is told to be durable, and isn't stored"
                )

    def answers(self) -> list[bool | None]:
        """The answers to each: durable, or not durable, or nothing."""
        return [None if each.told is None else isinstance(each.told, Durable) for each in self.waiters]

    def ask(self, lease: Lease, record: Record) -> bool:
        """Acks and waits; whether that counts."""
        waiter = Waiter(record.offset())
        self.waiters.append(waiter)
        self.do(Awaited([Ask(lease, record, waiter)]))
        return waiter.told is not Unstored.LATE

    @rule(data=st.data(), kept=st.booleans(), crossing=st.booleans())
    def callback_asks(self, data: st.DataObject, kept: bool, crossing: bool) -> None:
        """`crossing`: the handler doesn't know yet that its lease is over."""
        runner = self.pick(data, kept=kept)
        if runner is None or runner in self.asked or (runner.withdrawn and not crossing):
            return
        if not kept and not runner.began:
            return
        record = runner.lease.records[runner.acked]
        assert record.offset() == runner.offsets[runner.acked]
        if not self.ask(runner.lease, record):
            assert runner.withdrawn or runner in self.lingering, "an ack in time is called late"
            assert record.offset() not in self.acked
            return
        self.acked.add(record.offset())
        if kept:
            self.runners.remove(runner)
        else:
            self.asked.add(runner)

    def release(self, runner: Handler, outcome: LeaseOutcome, delay: float | None = None) -> None:
        if runner in self.asked and runner.began:
            self.asked.discard(runner)  # the callback's end and the ack crossed: neither knows of the other
            self.runners.remove(runner)
            self.do(LeasesReported([LeaseReport(runner.lease, runner.acked, outcome, delay)]))
            return
        super().release(runner, outcome, delay)

    @rule(data=st.data())
    def callback_acks(self, data: st.DataObject) -> None:
        runner = self.pick(data)
        if runner is None or (not runner.began and runner.stopped):
            return
        if runner in self.asked:
            self.asked.discard(runner)
            runner.withdrawn = False  # its ack came in time
        self.end_record(runner)

    def end_record(self, runner: Handler) -> None:
        if runner.withdrawn:
            self.release(runner, LeaseOutcome.NACKED)
            return
        self.acked.add(runner.offsets[runner.acked])
        runner.acked += 1
        runner.began = False
        if runner.acked == len(runner.offsets):
            self.release(runner, LeaseOutcome.FINISHED)

    @precondition(lambda self: self.inline)
    @rule(late=st.booleans())
    def inline_asks(self, late: bool) -> None:
        walk, record = self.inline, self.inline_next()
        if walk is None or record is None:
            return
        walk.reached += 1
        walk.acked.add(record.offset())
        if late:
            waiter = Waiter(record.offset())
            self.waiters.append(waiter)
            self.delayed.append(Ask(walk.lease, record, waiter))
        else:
            assert self.ask(walk.lease, record)

    @precondition(lambda self: self.inline)
    @rule()
    def left_asks(self) -> None:
        """A message that the walk has left is acked elsewhere before the walk has told of it."""
        walk, record = self.inline, self.inline_next()
        if walk is None or record is None:
            return
        self.inline_step(LeaseOutcome.KEPT, None, None)
        assert self.ask(walk.left[-1].lease, record)
        self.acked.add(record.offset())
        self.runners.pop()

    def end_inline(self, current: bool, *, began: bool = True) -> None:
        super().end_inline(current, began=began)
        asks, self.delayed = self.delayed, []
        if asks:
            self.do(Awaited(asks))

    @precondition(lambda self: self.unanswered)
    @rule()
    def answer_lost(self) -> None:
        """The ack was stored, and nobody hears of it."""
        commit = self.partition._commits.in_flight
        if commit is None or self.move_request is not None:
            return
        self.unanswered = False
        self.store(commit)
        self.do(CommitAnswered(False))

    def replace(self) -> None:
        self.asked.clear()
        super().replace()

    @rule()
    def crash(self) -> None:
        self.waiters.clear()  # nobody is there to be told
        self.delayed.clear()
        super().crash()

    def come_back_anew(self) -> None:
        raise NotImplementedError

    @precondition(lambda self: not self.partition.open)
    @rule()
    def comes_anew(self) -> None:
        super().come_back_anew()
        assert all(waiter.told for waiter in self.waiters), "the partition is gone, and somebody waits"

    def teardown(self) -> None:
        for runner in [runner for runner in self.runners if runner in self.asked]:
            self.asked.discard(runner)
            runner.withdrawn = False
            self.end_record(runner)
        super().teardown()
        assert all(waiter.told for waiter in self.waiters), "somebody waits for ever"


class PromptMachine(WaitingMachine):
    """Commits hurry for whoever waits."""

    exactly_once = True
