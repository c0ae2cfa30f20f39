"""The pull queue behind `receive`: who asks for how much, and who gets what."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_pubsub import Message
from kafka_pubsub.subscribe.partition.events import LeaseOutcome
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from kafka_pubsub.subscribe.workers.pull_queue import PullQueue
from tests.unit.subscribe.workers.holding import PATIENCE, Reported, lease_of, withdraw


class Post:
    """A pull queue and the runner at its bell: each ring brings as many leases as are wanted."""

    def __init__(self, stock: int = 1_000) -> None:
        self.reports = Reported()
        self.now = 0.0
        self.box = PullQueue(self.reports, self.wake, clock=lambda: self.now)
        self.stock = stock
        self.brought = 0
        self.rung = threading.Semaphore(0)

    def wake(self) -> None:
        self.rung.release()

    def bring(self, most: int = 1_000) -> int:
        count = min(self.box.wants(most), self.stock)
        self.box.take([lease_of(first=self.brought + at, key=None) for at in range(count)])
        self.brought += count
        self.stock -= count
        return count


def asking(post: Post, most: int, timeout: float | None = None) -> Callable[[], list[int]]:
    """A thread that receives; returns once it has asked. The result waits for it."""
    got: list[list[Message]] = []
    thread = threading.Thread(target=lambda: got.append(post.box.receive(most, timeout, lambda: False)))
    thread.start()
    assert post.rung.acquire(timeout=PATIENCE)

    def result() -> list[int]:
        thread.join(PATIENCE)
        assert got, "it still waits"
        return [message.offset for message in got[0]]

    return result


@pytest.fixture
def post() -> Post:
    return Post()


def test_nothing_is_wanted_while_nobody_asks(post: Post) -> None:
    assert post.box.wants(100) == 0
    assert list(post.box.running()) == []
    assert post.box.close(None)


def test_as_much_is_wanted_as_was_asked_for_and_may_be(post: Post) -> None:
    result = asking(post, 5)
    assert post.box.wants(100) == 5
    assert post.box.wants(3) == 3
    assert post.box.wants(-1) == 0
    assert post.bring() == 5
    assert result() == [0, 1, 2, 3, 4]
    assert post.box.wants(100) == 0


def test_the_lease_of_a_message_begins_when_it_is_returned(post: Post) -> None:
    """One that came too late for its call doesn't expire unseen."""
    post.box.take([lease_of(first=7, key=None)])
    assert post.reports.releases == []
    (message,) = post.box.receive(1, 0.0, lambda: False)
    assert message.offset == 7
    (release,) = post.reports.releases
    assert (release.done, release.outcome) == (0, LeaseOutcome.KEPT)


def test_what_is_there_is_enough_and_the_rest_is_not_wanted_any_more(post: Post) -> None:
    post.stock = 2
    result = asking(post, 5)
    post.bring()
    assert result() == [0, 1]
    assert post.box.wants(100) == 0


def test_waiting_ends_in_time(post: Post) -> None:
    assert post.box.receive(3, 0.0, lambda: False) == []
    assert post.box.receive(3, 0.01, lambda: False) == []
    assert post.box.wants(100) == 0


def test_waiting_ends_with_the_stream(post: Post) -> None:
    assert post.box.receive(3, None, lambda: True) == []


def test_a_message_that_came_too_late_is_for_the_next_one(post: Post) -> None:
    result = asking(post, 2)
    post.bring()
    post.box.take([lease_of(first=7, key=None)])
    assert result() == [0, 1]
    again = asking(post, 2)
    assert post.box.wants(100) <= 2
    assert again()[0] == 7


def test_a_message_whose_lease_ended_in_the_box_is_not_handed_out(post: Post) -> None:
    lease = lease_of(first=7, key=None)
    post.box.take([lease])
    lease_runner = lease.lease_runner
    assert isinstance(lease_runner, LeaseRunner)
    withdraw(lease_runner)
    assert post.box.receive(1, 0.01, lambda: False) == []
    (release,) = post.reports.releases
    assert (release.done, release.outcome) == (0, LeaseOutcome.UNTOUCHED), (
        "its key would be held back for ever"
    )


def test_a_message_whose_partition_was_revoked_in_the_box_is_given_back_unseen(post: Post) -> None:
    lease = lease_of(first=7, key=None)
    post.box.take([lease])
    lease_runner = lease.lease_runner
    assert isinstance(lease_runner, LeaseRunner)
    lease_runner.stopped = True
    assert post.box.receive(1, 0.01, lambda: False) == []
    (release,) = post.reports.releases
    assert (release.done, release.outcome) == (0, LeaseOutcome.UNTOUCHED)


def test_several_threads_get_what_each_asked_for(post: Post) -> None:
    """The first to return doesn't take the others' wishes along."""
    first = asking(post, 1)
    second = asking(post, 1)
    assert post.box.wants(100) == 2
    assert post.bring(1) == 1
    assert post.box.wants(100) == 1
    post.bring()
    assert sorted(first() + second()) == [0, 1]
    assert post.box.wants(100) == 0


def test_one_that_gives_up_leaves_the_others_waiting(post: Post) -> None:
    patient = asking(post, 1)
    assert post.box.receive(1, 0.0, lambda: False) == []
    assert post.box.wants(100) == 1
    post.bring()
    assert patient() == [0]


# When receive is not called any more


def test_it_is_idle_from_the_end_of_the_last_call(post: Post) -> None:
    post.now = 3.0
    assert post.box.receive(1, 0.0, lambda: False) == []
    post.now = 7.5
    assert post.box.idle(0) == 4.5
    post.box.touch()
    assert post.box.idle(0) == 0.0


def test_it_is_not_idle_while_a_call_waits(post: Post) -> None:
    result = asking(post, 1)
    post.now = 60.0
    assert post.box.idle(0) == 0.0
    post.bring()
    assert result() == [0]


def test_it_is_not_idle_while_a_message_that_was_returned_may_be_acked(post: Post) -> None:
    """A program that works on a message for long and then acks must not find that its lease is gone."""
    result = asking(post, 1)
    post.bring()
    result()
    post.now = 600.0
    assert post.box.idle(1) == 0.0
    assert post.box.idle(0) == 0.0, "the time counts from the ack, for the next call comes soon after it"
    post.now = 602.0
    assert post.box.idle(0) == 2.0


def test_what_came_too_late_does_not_keep_it_from_being_idle(post: Post) -> None:
    post.box.take([lease_of(first=7, key=None)])
    post.now = 5.0
    assert post.box.idle(1) == 5.0
    assert post.box.idle(2) == 0.0, "the other one was returned"


def test_what_is_over_in_the_box_is_not_taken_for_a_message_that_was_returned(post: Post) -> None:
    lease = lease_of(first=7, key=None)
    post.box.take([lease])
    lease_runner = lease.lease_runner
    assert isinstance(lease_runner, LeaseRunner)
    withdraw(lease_runner)
    post.now = 5.0
    assert post.box.idle(1) == 0.0, "the open lease is of a message that was returned"
