"""Holders: how far a walk comes, and what a report does before, during and after its callback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from kafka_pubsub import InvalidArgument, Message, StaleAck
from kafka_pubsub.model import AckId
from kafka_pubsub.subscribe.formats.record import ERROR_BYTES
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.partition.leases import Settlement
from kafka_pubsub.subscribe.workers.lease_runner import BatchLeaseRunner, LeaseRunner
from tests.unit.subscribe.workers.holding import PATIENCE, Reported, lease_of, withdraw


def acked(message: Message) -> None:
    message.ack()


def walk(
    callback: Callable[[Message], object], length: int = 3, attempt: int = 1
) -> tuple[LeaseReport, LeaseRunner, Reported]:
    reports = Reported()
    lease_runner = LeaseRunner(lease_of(length=length, attempt=attempt), reports)
    lease_runner.lease.lease_runner = lease_runner
    return lease_runner.run(callback), lease_runner, reports


def test_records_are_run_in_order_while_each_is_acked() -> None:
    seen: list[tuple[int, int]] = []

    def handle(message: Message) -> None:
        seen.append((message.offset, message.delivery_attempt))
        message.ack()

    release, lease_runner, reports = walk(handle, attempt=4)
    assert (release.done, release.outcome) == (3, LeaseOutcome.FINISHED)
    assert seen == [(0, 4), (1, 1), (2, 1)], "only the first of a run was delivered before"
    assert lease_runner.lease.lease_runner is None
    assert not reports.settlements


@pytest.mark.parametrize(("most", "outcome"), [(2, LeaseOutcome.UNTOUCHED), (3, LeaseOutcome.FINISHED)])
def test_a_run_may_be_cut_short(most: int, outcome: LeaseOutcome) -> None:
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.offset)
        message.ack()

    lease_runner = LeaseRunner(lease_of(length=3), Reported())
    release = lease_runner.run(handle, most)
    assert (release.done, release.outcome) == (most, outcome)
    assert seen == list(range(most))
    assert lease_runner.lease.lease_runner is None


@pytest.mark.parametrize(
    ("verb", "outcome", "delay"),
    [
        (lambda message: message.nack(), LeaseOutcome.NACKED, None),
        (lambda message: message.nack(delay=2.5), LeaseOutcome.NACKED, 2.5),
        (lambda message: message.extend(0), LeaseOutcome.NACKED, None),
        (lambda message: None, LeaseOutcome.KEPT, None),
        (lambda message: 1 / 0, LeaseOutcome.NACKED, None),
    ],
)
def test_a_run_ends_at_what_is_not_acked(
    verb: Callable[[Message], object], outcome: LeaseOutcome, delay: float | None
) -> None:
    release, _, reports = walk(lambda message: verb(message) if message.offset == 1 else message.ack())
    assert (release.done, release.outcome, release.delay) == (1, outcome, delay)
    assert not reports.settlements


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_a_callback_raises_gives_the_key_back(error: BaseException) -> None:
    def handle(message: Message) -> None:
        raise error

    release, _, _ = walk(handle)
    assert (release.done, release.outcome) == (0, LeaseOutcome.NACKED)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I have no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such customer"), "ValueError: no such customer"),
        (ValueError(), "ValueError: "),
        (ValueError("x" * 10_000_000), "ValueError: " + "x" * (ERROR_BYTES - len("ValueError: "))),
        (Speechless(), "Speechless: "),
    ],
)
def test_what_was_raised_is_reported_within_a_bound(error: BaseException, told: str) -> None:
    def handle(message: Message) -> None:
        raise error

    release, _, _ = walk(handle)
    assert release.error == told


def test_a_nack_reports_what_its_callback_was_dealing_with() -> None:
    def handle(message: Message) -> None:
        try:
            raise ValueError("no such customer")
        except ValueError:
            message.nack()

    release, _, _ = walk(handle)
    assert (release.outcome, release.error) == (LeaseOutcome.NACKED, "ValueError: no such customer")


def test_a_nack_without_an_error_reports_none() -> None:
    release, _, _ = walk(lambda message: message.nack())
    assert (release.outcome, release.error) == (LeaseOutcome.NACKED, "")


def test_a_callback_that_raises_after_its_ack_has_acked() -> None:
    def handle(message: Message) -> None:
        message.ack()
        raise RuntimeError("afterwards")

    release, _, _ = walk(handle)
    assert (release.done, release.outcome) == (3, LeaseOutcome.FINISHED)


def test_a_stopped_run_lets_the_current_record_count_and_begins_no_other() -> None:
    reports = Reported()
    lease_runner = LeaseRunner(lease_of(length=3), reports)

    def handle(message: Message) -> None:
        lease_runner.stopped = True
        message.ack()

    release = lease_runner.run(handle)
    assert (release.done, release.outcome) == (1, LeaseOutcome.UNTOUCHED)
    assert lease_runner.begin() is None


def test_a_report_on_a_lease_that_is_over_is_stale() -> None:
    reports = Reported()
    lease_runner = LeaseRunner(lease_of(length=2), reports)

    def handle(message: Message) -> None:
        withdraw(lease_runner)
        message.ack()
        message.extend(10)
        message.nack()

    release = lease_runner.run(handle)
    assert (release.done, release.outcome) == (0, LeaseOutcome.NACKED)
    assert reports.late == 3
    assert not reports.extensions


def test_what_was_acked_before_the_lease_ended_counts() -> None:
    reports = Reported()
    lease_runner = LeaseRunner(lease_of(length=2), reports)

    def handle(message: Message) -> None:
        message.ack()
        withdraw(lease_runner)

    release = lease_runner.run(handle)
    assert (release.done, release.outcome) == (1, LeaseOutcome.UNTOUCHED)


@pytest.mark.parametrize("twice", ["ack", "nack"])
@pytest.mark.parametrize("once", ["ack", "nack"])
def test_a_second_report_changes_nothing_and_is_counted(once: str, twice: str) -> None:
    def handle(message: Message) -> None:
        getattr(message, once)()
        getattr(message, twice)()

    release, _, reports = walk(handle, length=1)
    assert release.outcome is (LeaseOutcome.FINISHED if once == "ack" else LeaseOutcome.NACKED)
    assert reports.late == 1


def kept() -> tuple[Message, LeaseRunner, Reported]:
    """A message whose callback has returned without a word."""
    messages: list[Message] = []
    release, lease_runner, reports = walk(
        lambda message: messages.append(message) if message.offset else message.ack()
    )
    assert (release.done, release.outcome) == (1, LeaseOutcome.KEPT)
    return messages[0], lease_runner, reports


def test_an_ack_after_the_callback_is_reported_by_itself_once() -> None:
    message, lease_runner, reports = kept()
    message.ack()
    assert reports.settlements == [Settlement(lease_runner.lease, 1, acked=True)]
    message.ack()
    message.nack()
    assert (len(reports.settlements), reports.late) == (1, 2)


def test_a_nack_after_the_callback_is_reported_with_its_delay() -> None:
    message, lease_runner, reports = kept()
    message.nack(delay=3)
    assert reports.settlements == [Settlement(lease_runner.lease, 1, acked=False, delay=3)]


def test_a_deadline_may_be_moved_during_and_after_the_callback() -> None:
    message, lease_runner, reports = kept()
    message.extend(60)
    assert reports.extensions == [(lease_runner.lease, 1, 60)]
    message.ack()
    message.extend(60)
    assert (len(reports.extensions), reports.late) == (1, 1)


def test_after_the_lease_is_over_nothing_is_reported() -> None:
    message, lease_runner, reports = kept()
    withdraw(lease_runner)
    message.ack()
    message.nack()
    message.extend(5)
    assert (reports.settlements, reports.extensions, reports.late) == ([], [], 3)


@pytest.mark.parametrize("delay", [-1, 604_801, float("nan")])
def test_a_wrong_delay_is_refused_and_the_message_is_still_undecided(delay: float) -> None:
    message, _, reports = kept()
    with pytest.raises(InvalidArgument, match=r"nack\(delay="):
        message.nack(delay=delay)
    message.ack()
    assert reports.settlements[0].acked


@pytest.mark.parametrize("seconds", [-1, 601, float("nan")])
def test_a_wrong_deadline_is_refused(seconds: float) -> None:
    message, _, reports = kept()
    with pytest.raises(InvalidArgument, match=r"extend\("):
        message.extend(seconds)
    assert not reports.extensions


def test_an_ack_id_names_the_delivery_and_is_registered() -> None:
    message, _, reports = kept()
    assert AckId.parse(message.ack_id) == AckId(reports.process, 0, 0, 1, 1, 1)
    assert reports.ack_ids == {message.ack_id: message}


def test_an_ack_that_is_waited_for_is_asked_for_once_and_later_reports_are_late() -> None:
    message, lease_runner, reports = kept()
    future = message.ack_with_response()
    (ask,) = reports.acks.asked
    assert (ask.lease.partition, ask.record.offset()) == (lease_runner.lease.partition, 1)
    assert not future.done()
    assert not future.cancel()
    message.ack()
    message.nack()
    with pytest.raises(StaleAck, match="changed nothing"):
        message.ack_with_response().result()
    assert reports.late == 3
    assert not reports.settlements


def test_an_ack_that_is_waited_for_is_late_when_the_lease_is_over() -> None:
    message, lease_runner, reports = kept()
    withdraw(lease_runner)
    assert isinstance(message.ack_with_response().exception(), StaleAck)
    assert (reports.late, len(reports.acks.asked)) == (1, 0)


def test_a_run_goes_on_behind_an_ack_that_is_waited_for() -> None:
    release, _, reports = walk(lambda message: message.ack_with_response())
    assert (release.done, release.outcome) == (3, LeaseOutcome.FINISHED)
    assert [ask.record.offset() for ask in reports.acks.asked] == [0, 1, 2]


def test_an_ack_that_crosses_the_end_of_its_callback_is_never_lost() -> None:
    """On another thread, at any moment: reported by the walk, by itself, or by both; never by neither."""
    for _ in range(300):
        reports = Reported()
        lease_runner = LeaseRunner(lease_of(), reports)
        threads: list[threading.Thread] = []

        def handle(message: Message, threads: list[threading.Thread] = threads) -> None:
            threads.append(threading.Thread(target=message.ack))
            threads[0].start()

        release = lease_runner.run(handle)
        threads[0].join(PATIENCE)
        by_run = release.done == 1
        by_itself = any(settlement.acked for settlement in reports.settlements)
        assert by_run or by_itself
        assert by_run or release.outcome is LeaseOutcome.KEPT


def test_an_ack_just_before_the_run_lets_go_is_found_by_the_run() -> None:
    reports = Reported()
    lease_runner = LeaseRunner(lease_of(length=2), reports)
    message = lease_runner.begin()
    assert message is not None
    message.ack()  # by another thread, after the walk has looked: nobody was told
    release = lease_runner.left(message)
    assert (release.done, release.outcome, reports.settlements) == (1, LeaseOutcome.UNTOUCHED, [])


# Batches


def batch(
    decide: Callable[[list[Message]], object], length: int = 4, *, raised: bool = False
) -> tuple[LeaseReport, list[Message], Reported]:
    reports = Reported()
    lease_runner = BatchLeaseRunner(lease_of(length=length), reports)
    messages = list(lease_runner.begin_run())
    decide(messages)
    return lease_runner.end_run(ValueError("no") if raised else None), messages, reports


def decide(**verbs: str) -> Callable[[list[Message]], object]:
    """Verbs by name of message: `decide(m0="ack")`."""

    def run(messages: list[Message]) -> None:
        for name, verb in verbs.items():
            getattr(messages[int(name[1:])], verb)()

    return run


@pytest.mark.parametrize(
    ("decision", "done", "outcome"),
    [
        (decide(m0="ack", m1="ack", m2="ack", m3="ack"), 4, LeaseOutcome.FINISHED),
        (decide(m3="ack"), 4, LeaseOutcome.FINISHED),
        (decide(m1="ack"), 2, LeaseOutcome.KEPT),
        (decide(), 0, LeaseOutcome.KEPT),
        (decide(m0="ack", m1="nack", m2="ack"), 1, LeaseOutcome.NACKED),
        (decide(m0="nack", m3="ack"), 0, LeaseOutcome.NACKED),
    ],
)
def test_acks_inside_a_run_count_cumulatively_and_a_nack_ends_them(
    decision: Callable[[list[Message]], object], done: int, outcome: LeaseOutcome
) -> None:
    release, _, _ = batch(decision)
    assert (release.done, release.outcome) == (done, outcome)


def test_a_batch_whose_callback_raised_nacks_the_first_that_is_not_acked() -> None:
    release, _, _ = batch(decide(m0="ack"), raised=True)
    assert (release.done, release.outcome) == (1, LeaseOutcome.NACKED)


def test_the_error_is_that_of_the_message_that_comes_again() -> None:
    def both(messages: list[Message]) -> None:
        for at in (2, 1):
            try:
                raise ValueError(at)
            except ValueError:
                messages[at].nack()
        messages[0].ack()

    release, _, _ = batch(both)
    assert (release.done, release.error) == (1, "ValueError: 1")


def test_the_delay_is_that_of_the_message_that_comes_again() -> None:
    def both(messages: list[Message]) -> None:
        messages[2].nack(delay=600)
        messages[0].nack(delay=1)
        messages[3].nack(delay=30)

    release, _, _ = batch(both)
    assert (release.done, release.delay) == (0, 1)


@pytest.mark.parametrize("late", [0, 3])
@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_late_report_on_another_message_of_the_run_is_never_taken_for_the_current_one(
    late: int, verb: str
) -> None:
    """Message 0 was acked along with 1; 2 is with the user; 3 goes back to the queue."""
    _, messages, reports = batch(decide(m1="ack"))
    getattr(messages[late], verb)()
    assert (reports.settlements, reports.late) == ([], 1)
    messages[2].ack()
    assert [(settlement.done, settlement.acked) for settlement in reports.settlements] == [(2, True)]


def test_an_ack_that_is_waited_for_takes_the_earlier_ones_of_its_run_along() -> None:
    late: list[int] = []

    def decide(messages: list[Message]) -> None:
        messages[2].ack_with_response()
        for message in messages[:2]:
            message.nack()  # the log may know by now that they are acked
            late.append(message._state)

    release, _, reports = batch(decide)
    assert (release.done, release.outcome) == (3, LeaseOutcome.KEPT)
    assert [ask.record.offset() for ask in reports.acks.asked] == [2]
    assert reports.late == 2


def test_behind_a_nack_of_its_run_an_ack_counts_for_nothing_and_says_so() -> None:
    answers: list[BaseException | None] = []

    def decide(messages: list[Message]) -> None:
        messages[1].nack()
        answers.append(messages[3].ack_with_response().exception())

    release, _, reports = batch(decide)
    assert (release.done, release.outcome, len(reports.acks.asked)) == (0, LeaseOutcome.KEPT, 0)
    assert isinstance(answers[0], StaleAck)


def test_a_stopped_batch_begins_nothing() -> None:
    reports = Reported()
    lease_runner = BatchLeaseRunner(lease_of(length=2), reports)
    lease_runner.stopped = True
    assert lease_runner.begin_run() == []
    assert lease_runner.end_run() == LeaseReport(lease_runner.lease, 0, LeaseOutcome.UNTOUCHED)
