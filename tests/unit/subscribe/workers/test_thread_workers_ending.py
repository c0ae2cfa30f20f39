"""Pools: threads, a user's executor, batches. Who runs what, beside whom, and what closing leaves."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, Message
from kafka_pubsub.subscribe.partition.events import LeaseOutcome
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from kafka_pubsub.subscribe.workers.thread_workers import (
    BatchWorkers,
    ExecutorWorkers,
    ThreadWorkers,
    WorkerPool,
)
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE, Reported, lease_of

Make = Callable[[Callable[[Message], object], int, Reported], WorkerPool]


@pytest.fixture
def reports() -> Reported:
    return Reported()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture(params=["threads", "executor"])
def make(request: pytest.FixtureRequest, pool: ThreadPoolExecutor) -> Make:
    """Either pool that calls back for each message."""

    def threads(callback: Callable[[Message], object], workers: int, reports: Reported) -> WorkerPool:
        return ThreadWorkers(callback, workers, reports, "test")

    def executor(callback: Callable[[Message], object], workers: int, reports: Reported) -> WorkerPool:
        return ExecutorWorkers(callback, pool, workers, reports)

    return threads if request.param == "threads" else executor


class Gate:
    """A callback that says that it has begun, and waits until it may go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, message: Message) -> None:
        self.begun.release()
        assert self.go.wait(PATIENCE)
        message.ack()

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=PATIENCE), "it never began"


def hire_all(worker_pool: WorkerPool, gate: Gate, count: int) -> None:
    """Lets the runner's sweeps pass until `count` callbacks run beside each other."""
    for _ in range(count):
        while not gate.begun.acquire(timeout=0.03):
            worker_pool.wants(1000)


def test_every_lease_is_run_and_released(make: Make, reports: Reported) -> None:
    worker_pool = make(lambda message: message.ack(), 4, reports)
    worker_pool.take([lease_of(10 * number, 10, b"%d" % number) for number in range(50)])
    reports.wait_until(lambda: len(reports.releases) == 50)
    assert {release.outcome for release in reports.releases} == {LeaseOutcome.FINISHED}
    assert sum(release.done for release in reports.releases) == 500
    assert worker_pool.close(PATIENCE)


def test_keys_run_beside_each_other_up_to_the_number_of_workers(make: Make, reports: Reported) -> None:
    gate = Gate()
    worker_pool = make(gate, 4, reports)
    worker_pool.take([lease_of(number, 1, b"%d" % number) for number in range(4)])
    hire_all(worker_pool, gate, 4)
    walking = list(worker_pool.running())
    assert sorted(lease_runner.lease.records[0].offset() for lease_runner in walking) == [0, 1, 2, 3]
    assert all(lease_runner.begun for lease_runner in walking)
    gate.go.set()
    assert worker_pool.close(PATIENCE)
    assert len(reports.releases) == 4


def test_a_stuck_callback_does_not_stop_the_others(make: Make, reports: Reported) -> None:
    stuck, begun = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.offset == 0:
            begun.set()
            assert stuck.wait(PATIENCE)
        message.ack()

    worker_pool = make(handle, 2, reports)
    worker_pool.take([lease_of(0, 1, b"stuck")])
    assert begun.wait(PATIENCE)
    worker_pool.take([lease_of(number, 1, b"%d" % number) for number in range(1, 20)])
    reports.wait_until(lambda: len(reports.releases) == 19)
    assert [lease_runner.lease.key for lease_runner in worker_pool.running()] == [b"stuck"]
    stuck.set()
    assert worker_pool.close(PATIENCE)


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_worker_survives_whatever_its_callback_raises(
    make: Make, reports: Reported, error: type[BaseException]
) -> None:
    def handle(message: Message) -> None:
        if message.offset % 2:
            raise error("no")
        message.ack()

    worker_pool = make(handle, 1, reports)
    worker_pool.take([lease_of(number, 1, b"%d" % number) for number in range(10)])
    reports.wait_until(lambda: len(reports.releases) == 10)
    outcomes = {release.lease.records[0].offset(): release.outcome for release in reports.releases}
    assert outcomes == {n: LeaseOutcome.NACKED if n % 2 else LeaseOutcome.FINISHED for n in range(10)}
    assert worker_pool.close(PATIENCE)


def test_closing_waits_for_callbacks_that_run_and_says_when_they_do_not_end(
    make: Make, reports: Reported
) -> None:
    gate = Gate()
    worker_pool = make(gate, 1, reports)
    worker_pool.take([lease_of(0, 1)])
    gate.wait_for(1)
    assert not worker_pool.close(0.01)
    assert [lease_runner.lease.records[0].offset() for lease_runner in worker_pool.running()] == [0]
    gate.go.set()
    assert worker_pool.close(PATIENCE)
    assert len(reports.releases) == 1


def test_closing_inside_a_callback_does_not_wait_for_itself(reports: Reported) -> None:
    closed: list[bool] = []

    def handle(message: Message) -> None:
        closed.append(worker_pool.close(PATIENCE))
        message.ack()

    worker_pool = ThreadWorkers(handle, 1, reports, "test")
    worker_pool.take([lease_of(0, 1)])
    reports.wait_until(lambda: len(reports.releases) == 1)
    assert closed == [True]


def test_a_worker_pool_that_gets_nothing_more_runs_dry(reports: Reported) -> None:
    gate, aside = Gate(), deque[LeaseRunner]()
    worker_pool = ThreadWorkers(gate, 3, reports, "test")
    assert worker_pool.busy() == 0
    worker_pool.take([lease_of(at, 1, b"%d" % at) for at in range(10)])
    hire_all(worker_pool, gate, 3)
    assert (worker_pool.busy(), worker_pool.spares()) == (3, False)
    worker_pool.put_aside(aside)
    assert (worker_pool.busy(), len(aside)) == (3, 7)
    gate.go.set()
    until(lambda: worker_pool.busy() == 0)
    assert worker_pool.spares()
    assert len(reports.releases) == 3, "what a thread was with is reported before it counts as through"
    assert worker_pool.close(PATIENCE)


def test_a_lease_that_was_stopped_before_its_turn_is_given_back_untouched(
    make: Make, reports: Reported
) -> None:
    gate = Gate()
    worker_pool = make(gate, 1, reports)
    first, second = lease_of(0, 2, b"a"), lease_of(2, 1, b"b")
    worker_pool.take([first])
    gate.wait_for(1)
    lease_runner = first.lease_runner
    assert isinstance(lease_runner, LeaseRunner)
    lease_runner.stopped = True
    gate.go.set()
    reports.wait_until(lambda: len(reports.releases) == 1)
    assert (reports.releases[0].done, reports.releases[0].outcome) == (1, LeaseOutcome.UNTOUCHED)
    worker_pool.take([second])
    reports.wait_until(lambda: len(reports.releases) == 2)
    assert reports.releases[1].outcome is LeaseOutcome.FINISHED
    assert worker_pool.close(PATIENCE)


# A user's executor


def test_an_executor_gets_no_more_than_it_may_run_at_once(
    pool: ThreadPoolExecutor, reports: Reported
) -> None:
    gate = Gate()
    worker_pool = ExecutorWorkers(gate, pool, 3, reports)
    assert (worker_pool.wants(100), worker_pool.wants(2)) == (3, 2)
    worker_pool.take([lease_of(number, 1, b"%d" % number) for number in range(2)])
    assert worker_pool.wants(100) == 1
    gate.go.set()
    assert worker_pool.close(PATIENCE)
    assert worker_pool.wants(100) == 3


def test_a_process_pool_is_refused(reports: Reported) -> None:
    with (
        ProcessPoolExecutor(1) as processes,
        pytest.raises(InvalidArgument, match="a process pool can't ack"),
    ):
        ExecutorWorkers(print, processes, 1, reports)


def test_an_executor_that_was_shut_down_is_named(pool: ThreadPoolExecutor, reports: Reported) -> None:
    worker_pool = ExecutorWorkers(print, pool, 1, reports)
    pool.shutdown()
    with pytest.raises(FailedPrecondition, match="takes no more work"):
        worker_pool.take([lease_of(0, 1)])
    assert worker_pool.close(0)


def test_what_an_executor_drops_is_given_back_untouched(pool: ThreadPoolExecutor, reports: Reported) -> None:
    gate = Gate()
    worker_pool = ExecutorWorkers(gate, pool, 20, reports)
    worker_pool.take([lease_of(number, 1, b"%d" % number) for number in range(12)])
    gate.wait_for(8)
    pool.shutdown(wait=False, cancel_futures=True)
    reports.wait_until(lambda: len(reports.releases) == 4)
    assert {report.outcome for report in reports.releases} == {LeaseOutcome.UNTOUCHED}
    gate.go.set()
    assert worker_pool.close(PATIENCE)
    assert len(reports.releases) == 12


def test_what_a_broken_executor_drops_is_given_back_untouched(reports: Reported) -> None:
    go = threading.Event()

    def break_down() -> None:
        go.wait(PATIENCE)
        raise RuntimeError("no database")

    with ThreadPoolExecutor(1, initializer=break_down) as pool:
        worker_pool = ExecutorWorkers(print, pool, 1, reports)
        worker_pool.take([lease_of(0, 1)])
        go.set()
        reports.wait_until(lambda: len(reports.releases) == 1)
    assert reports.releases[0].outcome is LeaseOutcome.UNTOUCHED
    assert worker_pool.close(0)


# Batches


class Batches:
    """A batch pool and the batches that its callback got."""

    def __init__(self, size: int, latency: float, workers: int = 1) -> None:
        self.reports = Reported()
        self.got: list[list[tuple[bytes | None, int]]] = []
        self.worker_pool = BatchWorkers(self.handle, size, latency, workers, self.reports, "test")

    def handle(self, messages: list[Message]) -> None:
        self.got.append([(message.key, message.offset) for message in messages])
        for message in messages:
            message.ack()

    def wait_for(self, releases: int) -> None:
        self.reports.wait_until(lambda: len(self.reports.releases) == releases)
        assert self.worker_pool.close(PATIENCE)


def test_a_batch_holds_distinct_keys_and_is_called_when_full() -> None:
    batches = Batches(size=3, latency=PATIENCE)
    batches.worker_pool.take([lease_of(number, 1, b"%d" % number) for number in range(6)])
    batches.wait_for(6)
    assert [len(batch) for batch in batches.got] == [3, 3]
    assert {release.outcome for release in batches.reports.releases} == {LeaseOutcome.FINISHED}


def test_a_batch_that_does_not_fill_is_called_after_its_latency() -> None:
    batches = Batches(size=100, latency=0.01)
    batches.worker_pool.take([lease_of(number, 1, b"%d" % number) for number in range(3)])
    batches.wait_for(3)
    assert sum(map(len, batches.got)) == 3


def test_a_batch_fills_though_a_timeout_of_its_queue_may_never_end() -> None:
    """CPython 3.11 forgets the time of `SimpleQueue.get` if another thread takes the item for which it woke up."""

    class Forgetful(SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            return super().get(block)

    batches = Batches(size=100, latency=0.01)
    batches.worker_pool._workers.queue = Forgetful()
    batches.worker_pool.take([lease_of(number, 1, b"%d" % number) for number in range(3)])
    batches.wait_for(3)
    assert sum(map(len, batches.got)) == 3


def test_a_run_of_one_key_is_a_batch_of_its_own_in_its_order() -> None:
    batches = Batches(size=4, latency=0.0)
    batches.worker_pool.take([lease_of(0, 1, b"a"), lease_of(1, 4, b"run"), lease_of(5, 1, b"b")])
    batches.wait_for(3)
    assert [(b"run", offset) for offset in (1, 2, 3, 4)] in batches.got
    for batch in batches.got:
        keys = [key for key, _ in batch]
        assert len(set(keys)) == len(keys) or set(keys) == {b"run"}


def test_a_batch_callback_that_raises_nacks_what_it_had_not_acked() -> None:
    reports = Reported()

    def handle(messages: list[Message]) -> None:
        messages[0].ack()
        raise SystemExit

    worker_pool = BatchWorkers(handle, 2, PATIENCE, 1, reports, "test")
    worker_pool.take([lease_of(0, 1, b"a"), lease_of(1, 1, b"b")])
    reports.wait_until(lambda: len(reports.releases) == 2)
    by_key = {release.lease.key: release.outcome for release in reports.releases}
    assert by_key == {b"a": LeaseOutcome.FINISHED, b"b": LeaseOutcome.NACKED}
    assert worker_pool.close(PATIENCE)


def test_batches_ask_for_what_their_workers_can_take() -> None:
    worker_pool = Batches(size=5, latency=0, workers=2).worker_pool
    assert (worker_pool.wants(1000), worker_pool.wants(3), worker_pool.run, worker_pool.spread) == (
        10,
        3,
        5,
        True,
    )
    assert worker_pool.close(0)
