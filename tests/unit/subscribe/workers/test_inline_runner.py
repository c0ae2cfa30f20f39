"""Inline holders: a walk that nobody takes over, and what becomes of the messages that it left."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from kafka_pubsub import Message
from kafka_pubsub.subscribe.partition import inline_lease
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport, Passed
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
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
    offsets,
)

# A walk that nobody disturbs


def test_all_acked_is_one_word() -> None:
    lease_runner, reports = lease_runner_of()
    seen: list[tuple[int, int]] = []

    def handle(message: Message) -> None:
        seen.append((message.offset, message.delivery_attempt))
        message.ack()

    passed = is_passed(lease_runner.pass_through(handle))
    assert passed == Passed(lease_runner.lease, len(KEYS), [], [], False, [])
    assert seen == [(at, 1) for at in range(len(KEYS))]
    assert offsets(inline_lease.finished(passed)) == [0, 1, 2, 3, 4, 5]
    assert lease_runner.lease.lease_runner is None
    assert (reports.releases, reports.settlements, reports.late) == ([], [], 0)


@pytest.mark.parametrize("name", VERBS)
def test_what_is_not_acked_is_reported_and_its_key_is_passed_over(name: str) -> None:
    lease_runner, _ = lease_runner_of()
    passed = is_passed(lease_runner.pass_through(at(0, VERBS[name])))
    if name == "keep":
        (release,) = passed.left
        assert (release.outcome, release.delay) == (LeaseOutcome.KEPT, None)
        assert (release.lease.key, release.lease.attempt, release.done) == (b"a", 1, 0)
        assert release.lease is not lease_runner.lease
        assert offsets(release.lease.records) == [0]
    else:
        ((record, delay, _),) = passed.nacked
        assert (record.offset(), delay) == (0, 2.5 if name == "nack later" else None)
        assert not passed.left
    assert offsets(passed.skipped) == [2]
    assert offsets(inline_lease.finished(passed)) == [1, 3, 4, 5]


def test_records_without_a_key_are_never_passed_over() -> None:
    lease_runner, _ = lease_runner_of([None, None, None])
    passed = is_passed(lease_runner.pass_through(lambda message: message.nack()))
    assert list(left(passed)) == [0, 1, 2]
    assert not passed.skipped


def test_without_an_order_no_key_is_blocked_nor_passed_over() -> None:
    lease_runner, _ = lease_runner_of([b"a", b"a"], ordered=False)
    passed = is_passed(lease_runner.pass_through(at(0, VERBS["keep"])))
    assert [release.lease.key for release in passed.left] == [None]
    assert offsets(inline_lease.finished(passed)) == [1]


def test_the_delay_of_a_nack_is_its_own() -> None:
    lease_runner, _ = lease_runner_of([b"a", b"b", b"c"])
    verbs = [VERBS["nack later"], VERBS["nack"], VERBS["raise"]]
    passed = is_passed(lease_runner.pass_through(lambda message: verbs[message.offset](message)))
    assert [delay for _, delay, _ in passed.nacked] == [2.5, None, None]


def test_a_nack_that_crossed_the_end_of_its_callback_does_not_delay_the_next_one() -> None:
    lease_runner, reports = lease_runner_of([b"a", b"b"])
    kept: list[Message] = []

    def handle(message: Message) -> None:
        if not kept:
            kept.append(message)
            return
        lease_runner.nack(kept[0], 600)  # another thread, which read the holder before the message was left
        raise RuntimeError

    passed = is_passed(lease_runner.pass_through(handle))
    assert left(passed) == {0: LeaseOutcome.KEPT, 1: LeaseOutcome.NACKED}
    assert [delay for _, delay, _ in passed.nacked] == [None]
    assert reports.settlements == [Settlement(passed.left[0].lease, 0, acked=False, delay=600)]


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt()])
def test_whatever_a_callback_raises_the_run_goes_on(error: BaseException) -> None:
    lease_runner, _ = lease_runner_of([b"a", b"b"])

    def raises(message: Message) -> None:
        raise error

    passed = is_passed(lease_runner.pass_through(at(0, raises)))
    assert left(passed) == {0: LeaseOutcome.NACKED}
    assert offsets(inline_lease.finished(passed)) == [1]


def test_a_callback_that_raises_after_its_ack_has_acked() -> None:
    lease_runner, _ = lease_runner_of([b"a"])

    def handle(message: Message) -> None:
        message.ack()
        raise RuntimeError("afterwards")

    assert not is_passed(lease_runner.pass_through(handle)).left


@pytest.mark.parametrize("twice", ["ack", "nack"])
@pytest.mark.parametrize("once", ["ack", "nack"])
def test_a_second_report_changes_nothing_and_is_counted(once: str, twice: str) -> None:
    lease_runner, reports = lease_runner_of([b"a"])

    def handle(message: Message) -> None:
        getattr(message, once)()
        getattr(message, twice)()

    passed = is_passed(lease_runner.pass_through(handle))
    assert left(passed) == ({} if once == "ack" else {0: LeaseOutcome.NACKED})
    assert reports.late == 1


@pytest.mark.parametrize("spare", [1, 2])
def test_no_more_messages_are_kept_than_allowed_and_then_nothing_begins(spare: int) -> None:
    lease_runner, _ = lease_runner_of([b"a", b"b", b"c", b"d"], spare=spare)
    seen: list[int] = []
    passed = is_passed(lease_runner.pass_through(lambda message: seen.append(message.offset)))
    assert seen == list(range(spare))
    assert passed.reached == spare
    assert list(left(passed)) == seen


def test_nacked_messages_are_not_out_so_they_use_up_no_allowance() -> None:
    lease_runner, _ = lease_runner_of([b"a", b"b", b"c", b"d"], spare=1)
    passed = is_passed(lease_runner.pass_through(lambda message: message.nack()))
    assert passed.reached == 4


# What was left, afterwards


def kept(verb: Callable[[Message], object] = VERBS["keep"]) -> tuple[Message, Lease, Reported]:
    lease_runner, reports = lease_runner_of([b"a", b"b"])
    messages: list[Message] = []

    def handle(message: Message) -> None:
        messages.append(message)
        verb(message)

    passed = is_passed(lease_runner.pass_through(at(0, handle)))
    return messages[0], passed.left[0].lease, reports


def test_an_ack_after_the_run_settles_the_lease_of_its_own_once() -> None:
    message, lease, reports = kept()
    message.ack()
    assert reports.settlements == [Settlement(lease, 0, acked=True)]
    assert lease.lease_runner is None
    message.ack()
    assert (len(reports.settlements), reports.late) == (1, 1)


def test_a_nack_and_an_extension_after_the_run_are_about_the_lease_of_its_own() -> None:
    message, lease, reports = kept()
    message.extend(60)
    message.nack(delay=3)
    assert reports.extensions == [(lease, 0, 60)]
    assert reports.settlements == [Settlement(lease, 0, acked=False, delay=3)]


def test_when_the_lease_of_its_own_is_over_an_ack_is_late() -> None:
    message, lease, reports = kept()
    lease_runner = lease.lease_runner
    assert isinstance(lease_runner, LeaseRunner)
    lease_runner.withdrawn = True
    message.ack()
    assert (reports.settlements, reports.late) == ([], 1)


def test_an_ack_id_from_inside_the_callback_acks_later() -> None:
    message, lease, reports = kept(lambda message: message.ack_id)
    assert list(reports.ack_ids) == [message.ack_id]
    reports.ack_ids[message.ack_id].ack()
    assert reports.settlements == [Settlement(lease, 0, acked=True)]


@pytest.mark.parametrize("verb", ["keep", "nack"])
def test_nothing_is_left_to_the_collector(verb: str) -> None:
    gc.disable()
    try:
        lease_runner, _ = lease_runner_of([b"a", b"b"])
        old = [weakref.ref(record) for record in lease_runner.lease.records]
        passed = is_passed(lease_runner.pass_through(at(0, VERBS[verb])))
        if verb == "keep":
            passed.left[0].lease.lease_runner = None  # as the core does when it is over
        del lease_runner, passed
        assert [each() for each in old] == [None, None]
    finally:
        gc.enable()


def test_who_is_taken_over_before_it_began_is_not_left_to_the_collector_either() -> None:
    gc.disable()
    try:
        lease_runner, _ = lease_runner_of([b"a"])
        old = weakref.ref(lease_runner.lease.records[0])
        lease_runner.take_over()
        del lease_runner
        assert old() is None
    finally:
        gc.enable()


# An ack on another thread, while its callback returns


def test_an_ack_between_the_callback_and_the_lock_counts_in_the_run() -> None:
    lease_runner, reports = lease_runner_of([b"a", b"a"])
    messages: list[Message] = []
    lease_runner._lock = Moments(0, lambda: acked(messages[0]))  # type: ignore[assignment]
    passed = is_passed(lease_runner.pass_through(at(0, messages.append)))
    assert offsets(inline_lease.finished(passed)) == [0, 1]
    assert not passed.left
    # It was told by itself as well or not at all; a settlement of a lease that was never opened changes nothing.
    assert all(settlement.lease is not lease_runner.lease for settlement in reports.settlements)


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_report_that_crosses_the_change_of_its_lease_runner_is_reported_by_one_of_them(verb: str) -> None:
    """On another thread, at any moment: by the walk, by itself, or by both; never by neither."""
    for _ in range(300):
        lease_runner, reports = lease_runner_of([b"a", b"b"])
        threads: list[threading.Thread] = []

        def handle(message: Message, threads: list[threading.Thread] = threads) -> None:
            threads.append(threading.Thread(target=getattr(message, verb)))
            threads[0].start()

        passed = is_passed(lease_runner.pass_through(at(0, handle)))
        threads[0].join(20)
        by_run = left(passed).get(0) is not LeaseOutcome.KEPT
        by_itself = [each for each in reports.settlements if each.acked is (verb == "ack")]
        assert by_run or by_itself
        if by_itself and passed.left:
            assert by_itself[0].lease is passed.left[0].lease
        assert not reports.late


def test_an_ack_that_had_read_the_old_lease_runner_reaches_the_new_one() -> None:
    """The ack has looked at the state, then the message is left, then the ack goes on."""
    lease_runner, reports = lease_runner_of([b"a"])
    messages: list[Message] = []
    passed: list[Passed] = []

    class Slow:
        """Stands for the old holder in the thread that acks: looking whether it is withdrawn takes long."""

        reports = None

        @property
        def withdrawn(self) -> bool:
            message._sink = lease_runner
            passed.append(is_passed(reported_later()))
            return False

    def reported_later() -> Passed | LeaseReport | None:
        assert lease_runner._leaves(message, message._record)  # type: ignore[arg-type]
        return lease_runner._end()

    lease_runner.pass_through(messages.append)  # a message of this holder's kind, undecided
    lease_runner, reports = lease_runner_of([b"a"])
    message = messages[0]
    message._sink = Slow()  # type: ignore[assignment]
    message.ack()
    assert left(passed[0]) == {0: LeaseOutcome.KEPT}
    assert reports.settlements == [Settlement(passed[0].left[0].lease, 0, acked=True)]
