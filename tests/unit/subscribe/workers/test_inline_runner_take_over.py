"""Inline holders that are taken over, at every moment there is.

The walking thread is the test's own: a take-over at a chosen moment is made inside the callback, or around the
holder's lock, which are all the moments at which what another thread finds can differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from kafka_pubsub import Message
from kafka_pubsub.subscribe.partition import inline_lease
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport, Passed
from kafka_pubsub.subscribe.partition.leases import Settlement
from kafka_pubsub.subscribe.workers.inline_runner import (
    InlineLeaseRunner,
)
from tests.unit.subscribe.workers.holding import Reported
from tests.unit.subscribe.workers.walking import (
    KEYS,
    VERBS,
    Moments,
    acked,
    at,
    is_passed,
    lease_runner_of,
    left,
    narrow,
    offsets,
)

# Taken over


def test_before_it_began_all_goes_back() -> None:
    lease_runner, _ = lease_runner_of()
    passed = lease_runner.take_over()
    assert passed == Passed(lease_runner.lease, 0, [], [], False, [])
    assert lease_runner.pass_through(lambda message: pytest.fail("it was called")) is None, (
        "the walking thread has nothing to do or to say any more"
    )
    assert lease_runner.take_over() is None


@pytest.mark.parametrize("offset", range(len(KEYS)))
@pytest.mark.parametrize(
    ("verb", "outcome"),
    [
        ("ack", LeaseOutcome.FINISHED),
        ("nack", LeaseOutcome.NACKED),
        ("nack later", LeaseOutcome.NACKED),
        ("raise", LeaseOutcome.NACKED),
        ("keep", LeaseOutcome.KEPT),
    ],
)
@pytest.mark.parametrize("first", ["take over", "outcome"])
def test_inside_a_callback_its_record_goes_on_alone(
    offset: int, verb: str, outcome: LeaseOutcome, first: str
) -> None:
    lease_runner, _ = lease_runner_of()
    lease, taken, seen = lease_runner.lease, [], []

    def handle(message: Message) -> None:
        seen.append(message.offset)
        if message.offset != offset:
            message.ack()
            return
        verbs: list[Callable[[], object]] = [
            lambda: taken.append(narrow(lease, is_passed(lease_runner.take_over())))
        ]
        verbs.insert(first == "take over", lambda: {**VERBS, "ack": acked}[verb](message))
        try:
            verbs[0]()
        finally:
            verbs[1]()

    told = lease_runner.pass_through(handle)
    assert seen == list(range(offset + 1)), "nothing begins after a take-over"
    assert [(each.reached, each.current, each.left, each.skipped) for each in taken] == [
        (offset, True, [], [])
    ]
    assert isinstance(told, LeaseReport)
    assert told.lease is lease
    assert (told.outcome, told.done) == (outcome, 1 if verb == "ack" else 0)
    assert told.delay == (2.5 if verb == "nack later" else None)
    assert lease_runner.take_over() is None


@pytest.mark.parametrize("late", ["ack", "nack"])
def test_a_message_that_its_callback_kept_after_a_take_over_is_settled_later(late: str) -> None:
    lease_runner, reports = lease_runner_of()
    messages: list[Message] = []

    def handle(message: Message) -> None:
        narrow(lease_runner.lease, is_passed(lease_runner.take_over()))
        messages.append(message)

    told = lease_runner.pass_through(handle)
    assert told == LeaseReport(lease_runner.lease, 0, LeaseOutcome.KEPT)
    getattr(messages[0], late)()
    assert reports.settlements == [Settlement(lease_runner.lease, 0, acked=late == "ack")]


def test_what_was_left_and_passed_over_before_a_take_over_is_reported_by_it() -> None:
    lease_runner, _ = lease_runner_of([b"a", b"b", b"a", b"b", b"a"])
    taken: list[Passed] = []

    def handle(message: Message) -> None:
        if message.offset == 3:
            taken.append(narrow(lease_runner.lease, is_passed(lease_runner.take_over())))
        if message.offset:
            message.ack()

    told = lease_runner.pass_through(handle)
    (passed,) = taken
    assert (passed.reached, passed.current) == (3, True)
    assert left(passed) == {0: LeaseOutcome.KEPT}
    assert offsets(passed.skipped) == [2]
    assert told == LeaseReport(lease_runner.lease, 1, LeaseOutcome.FINISHED)


# Every moment, whatever the callbacks do


class Story:
    """One walk with a take-over at a chosen moment; `holds` says whether all records are accounted for."""

    def __init__(self, keys: Sequence[bytes | None], verbs: Sequence[str], chosen: int) -> None:
        self.lease_runner, self.reports = lease_runner_of(keys)
        self.lease, self.verbs = self.lease_runner.lease, verbs
        self.records = list(self.lease.records)
        self.called: list[int] = []
        self.taken: list[Passed] = []
        self.moments = Moments(chosen, self.take_over)
        self.lease_runner._lock = self.moments  # type: ignore[assignment]
        self.told = self.lease_runner.pass_through(self.handle)

    def take_over(self) -> None:
        passed = self.lease_runner.take_over()
        if passed is not None:
            self.taken.append(passed)
            self.finished = offsets(inline_lease.finished(passed))
            self.rest = offsets(self.lease.records[passed.reached :])
            narrow(self.lease, passed)

    def handle(self, message: Message) -> None:
        self.called.append(message.offset)
        self.moments.moment()
        {**VERBS, "ack": acked}[self.verbs[message.offset]](message)
        self.moments.moment()

    def holds(self) -> None:
        if not self.taken:
            self.taken.append(is_passed(self.told))
            self.finished, self.rest = offsets(inline_lease.finished(self.taken[0])), []
        (passed,) = self.taken
        current = [self.rest.pop(0)] if passed.current else []
        places = [*self.finished, *left(passed), *offsets(passed.skipped), *self.rest, *current]
        assert sorted(places) == offsets(self.records), "a record is in no place, or in two"
        assert sorted([*self.finished, *left(passed), *current]) == self.called
        assert all(self.verbs[each] == "ack" for each in self.finished)
        assert all(self.verbs[each] != "ack" for each in left(passed))
        self.word_about(current, passed)
        self.order(passed)

    def word_about(self, current: Sequence[int], passed: Passed) -> None:
        """What the walking thread says at its end: of its current record if it has one, nothing else."""
        if not current:
            assert self.told is None or self.told is passed
            return
        assert isinstance(self.told, LeaseReport)
        wanted = {"ack": LeaseOutcome.FINISHED, "nack": LeaseOutcome.NACKED, "keep": LeaseOutcome.KEPT}[
            self.verbs[current[0]]
        ]
        assert (self.told.lease, self.told.outcome) == (self.lease, wanted)
        assert offsets(self.lease.records) == current

    def order(self, passed: Passed) -> None:
        """Nothing of a key is called after one that wasn't acked."""
        for number, record in enumerate(self.records):
            before = [
                each for each in range(number) if record.key() is not None and KEYS[each] == record.key()
            ]
            if number in self.called:
                assert all(each in self.called and self.verbs[each] == "ack" for each in before)
        assert offsets(passed.skipped) == sorted(offsets(passed.skipped))


@pytest.mark.parametrize("verbs", list(product(["ack", "nack", "keep"], repeat=4)), ids="-".join)
def test_a_take_over_at_any_moment_leaves_each_record_in_one_place(verbs: Sequence[str]) -> None:
    keys = KEYS[:4]
    undisturbed = Story(keys, verbs, chosen=-1)
    undisturbed.holds()
    assert undisturbed.moments.passed >= 10
    for chosen in range(undisturbed.moments.passed):
        story = Story(keys, verbs, chosen)
        story.holds()
        assert story.lease_runner.take_over() is None or story.told is story.taken[0]


def test_who_is_through_says_so_by_the_take_over_too() -> None:
    """Or else the next fetcher would read on before anybody has heard which keys are blocked."""
    lease_runner, _ = lease_runner_of([b"a", b"a"])
    passed = lease_runner.pass_through(lambda message: None)
    assert passed is not None
    assert lease_runner.take_over() is passed


# Extensions


class Engine(Reported):
    """Takes over when it is told to, as the runner does."""

    def __init__(self) -> None:
        super().__init__()
        self.lease_runner: InlineLeaseRunner | None = None
        self.taken: list[Passed] = []

    def take_over(self) -> None:
        assert self.lease_runner is not None
        if (passed := self.lease_runner.take_over()) is not None:
            self.taken.append(narrow(self.lease_runner.lease, passed))


def runner_of(keys: Sequence[bytes | None]) -> tuple[InlineLeaseRunner, Engine]:
    reports = Engine()
    lease_runner, _ = lease_runner_of(keys)
    lease_runner.reports = reports
    reports.lease_runner = lease_runner
    return lease_runner, reports


def test_an_extension_inside_the_callback_gives_the_message_its_own_lease_first() -> None:
    lease_runner, reports = runner_of([b"a", b"b", b"c"])
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.offset)
        if message.offset == 1:
            message.extend(60)
            message.extend(90)
        message.ack()

    told = lease_runner.pass_through(handle)
    assert [(passed.reached, passed.current) for passed in reports.taken] == [(1, True)]
    assert reports.extensions == [(lease_runner.lease, 0, 60), (lease_runner.lease, 0, 90)]
    assert told == LeaseReport(lease_runner.lease, 1, LeaseOutcome.FINISHED)
    assert seen == [0, 1]


def test_an_extension_that_finds_the_message_left_meanwhile_is_about_its_own_lease() -> None:
    """Another thread's, which read the holder before the message was left."""
    lease_runner, reports = runner_of([b"a", b"b"])
    messages: list[Message] = []
    passed = is_passed(lease_runner.pass_through(at(0, messages.append)))
    lease_runner.extend(messages[0], 60)
    assert reports.extensions == [(passed.left[0].lease, 0, 60)]


def test_a_late_extension_takes_nothing_over() -> None:
    lease_runner, reports = runner_of([b"a"])

    def handle(message: Message) -> None:
        message.ack()
        message.extend(60)

    assert is_passed(lease_runner.pass_through(handle)).reached == 1
    assert (reports.taken, reports.extensions, reports.late) == ([], [], 1)
