"""Futures of messages to causal topics behave like the standard library's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, as_completed, wait

import pytest

from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.multicast.future import Sent, SentFuture, resolve
from kafka_pubsub.multicast.values import MessageTimestamp
from kafka_pubsub.publish.future import CallbackThread
from tests.support import until

PATIENCE = 20.0
SENT = [Sent(f"p-1.{number}", MessageTimestamp(7, "a", number)) for number in range(50)]


def make(count: int) -> tuple[list[SentFuture], threading.Lock]:
    lock = threading.Lock()
    return [SentFuture(Owner()) for _ in range(count)], lock


class Owner:
    """The publisher's part in a future."""

    def __init__(self) -> None:
        self.callbacks = CallbackThread()

    def waits(self, future: object, seconds: float | None) -> str:
        return f"not after {seconds} s"


def test_a_future_gives_its_result() -> None:
    (one, two), lock = make(2)
    assert not one.done()
    assert one.running()
    assert not one.cancel()
    with pytest.raises(TimeoutError, match="not after 0 s"):
        one.result(0)
    resolve([one, two], SENT[:2], lock)
    assert [one.result(0), two.result()] == SENT[:2]
    assert one.done()
    assert two.exception(0) is None
    assert "finished" in repr(two)


def test_the_first_outcome_counts() -> None:
    (one, two), lock = make(2)
    resolve([one], [DeadlineExceeded("late")], lock)
    resolve([one, two], SENT[:2], lock)
    resolve([one, two], SENT[2:4], lock)
    with pytest.raises(DeadlineExceeded):
        one.result(0)
    with pytest.raises(InvalidStateError):
        two.set_result(SENT[4])
    assert two.result(0) == SENT[1]


def test_callbacks_are_called_once_before_and_after_the_outcome() -> None:
    (one,), lock = make(1)
    called: list[Future[Sent]] = []
    one.add_done_callback(called.append)
    resolve([one], SENT[:1], lock)
    until(lambda: called == [one])
    one.add_done_callback(called.append)
    assert called == [one, one]


def test_wait_and_as_completed_know_them() -> None:
    futures, lock = make(4)
    resolve(futures[:1], SENT[:1], lock)
    assert wait(futures, 0).done == {futures[0]}
    assert wait(futures, PATIENCE, FIRST_COMPLETED).done == {futures[0]}
    timer = threading.Timer(0.01, resolve, (futures[1:], SENT[1:4], lock))
    timer.start()
    ended: Iterator[Future[Sent]] = as_completed(list[Future[Sent]](futures), PATIENCE)
    assert {each.result() for each in ended} == set(SENT[:4])
    assert not wait(futures, PATIENCE).not_done


def test_threads_that_wait_while_it_is_resolved_are_woken() -> None:
    for _ in range(50):
        futures, lock = make(50)
        found: list[list[Sent]] = []

        def collect(futures: list[SentFuture] = futures, found: list[list[Sent]] = found) -> None:
            found.append([each.result(PATIENCE) for each in futures])

        threads = [threading.Thread(target=collect) for _ in range(2)]
        threads.append(threading.Thread(target=resolve, args=(futures, SENT, lock)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert found == [SENT, SENT]
