"""The threads of a pool: when they end, and that none of them leaves a message behind. The clock is a test's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pubsub import Message
from kafka_pubsub.subscribe.workers.thread_workers import (
    IDLE,
    LEAST,
    BatchWorkers,
    ThreadWorkers,
    Worker,
    Workers,
)
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE, Reported, lease_of

_names = itertools.count()


class Gates:
    """Workers whose items stay with a thread until the test lets each go on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.name = f"gates-{next(_names)}"
        self.began: set[int] = set()
        self.done: set[int] = set()
        self.gates: dict[int, threading.Event] = {}
        self.workers: Workers[int] = Workers(self.work, self.name, lambda: self.now)

    def work(self, item: int, worker: Worker[int]) -> None:
        worker.current = (item,)
        self.began.add(item)
        assert self.gates[item].wait(PATIENCE)
        worker.current = ()
        worker.done += 1
        worker.ended += 1
        self.done.add(item)

    def put(self, count: int, most: int = 100) -> None:
        """Hands out `count` items, and hires for each that has no thread, as a pool does."""
        for _ in range(count):
            item = len(self.gates)
            self.gates[item] = threading.Event()
            self.workers.put(item)
            if self.workers.hired < min(most, self.workers.handed - self.workers.ended):
                self.workers.hire()

    def finish(self, *items: int) -> None:
        for item in items:
            self.gates[item].set()
        until(lambda: self.done.issuperset(items))
        until(lambda: self.workers.ended == len(self.done))

    def pause(self, seconds: float = IDLE) -> None:
        self.now += seconds
        self.workers.rest()

    def alive(self) -> int:
        return sum(thread.name.startswith(f"{self.name}-") for thread in threading.enumerate())

    def close(self) -> None:
        for gate in self.gates.values():
            gate.set()
        assert self.workers.close(PATIENCE)
        assert self.done == set(self.gates)


def test_threads_that_had_nothing_to_do_for_a_while_end_and_one_stays() -> None:
    gates = Gates()
    gates.workers.rest()
    gates.put(8)
    until(lambda: len(gates.began) == 8)
    gates.finish(*range(8))
    gates.pause()
    assert gates.workers.hired == 8, "they were needed just now"
    gates.pause(IDLE / 2)
    assert gates.workers.hired == 8
    gates.pause()
    assert gates.workers.hired == LEAST == 1
    until(lambda: gates.alive() == 1)
    gates.pause()
    gates.pause()
    assert (gates.workers.hired, gates.workers.ended, gates.workers.done) == (1, 8, 8)
    gates.close()


def test_a_thread_whose_callback_takes_long_is_needed() -> None:
    gates = Gates()
    gates.put(4)
    until(lambda: len(gates.began) == 4)
    for _ in range(10):
        gates.pause()
    assert gates.workers.hired == 4
    gates.finish(0, 1)
    gates.pause()
    gates.pause()
    assert gates.workers.hired == 2
    until(lambda: gates.alive() == 2)
    assert gates.workers.busy == 2
    gates.close()


def test_a_stream_that_goes_on_keeps_its_threads() -> None:
    gates = Gates()
    for at in range(20):
        gates.put(4)
        until(lambda: len(gates.began) == len(gates.gates))
        gates.finish(*range(4 * at, 4 * at + 4))
        gates.pause(IDLE / 2)
        assert gates.workers.hired == 4
    gates.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "finish", "pause"]), st.integers(1, 5)), max_size=40))
def test_whatever_happens_each_item_has_a_thread(steps: list[tuple[str, int]]) -> None:
    """Never fewer threads than items, up to the most; none of them is lost; threads that are idle end."""
    most, gates = 4, Gates()
    try:
        for step, count in steps:
            if step == "put":
                gates.put(count, most)
            elif step == "finish":
                gates.finish(*sorted(gates.began - gates.done)[:count])
            else:
                gates.pause(count * IDLE / 2)
            open_items = len(gates.gates) - len(gates.done)
            assert gates.workers.hired >= min(most, open_items)
            until(lambda: len(gates.began) >= len(gates.done) + min(most, len(gates.gates) - len(gates.done)))
        gates.finish(*range(len(gates.began)))
        while len(gates.done) < len(gates.gates):
            gates.finish(*(gates.began - gates.done))
        gates.pause()
        gates.pause()
        assert gates.workers.hired <= LEAST
        until(lambda: gates.alive() <= LEAST)
    finally:
        gates.close()


def _of_threads(
    callback: Callable[[Message], object], reports: Reported, clock: Callable[[], float]
) -> ThreadWorkers:
    return ThreadWorkers(callback, 8, reports, "resting-threads", clock)


def _of_batches(
    callback: Callable[[Message], object], reports: Reported, clock: Callable[[], float]
) -> BatchWorkers:
    def each(messages: list[Message]) -> None:
        for message in messages:
            callback(message)

    return BatchWorkers(each, 1, 0.0, 8, reports, "resting-batches", clock)


@pytest.mark.parametrize("make", [_of_threads, _of_batches])
def test_a_worker_pool_of_an_idle_stream_has_one_thread_left_and_takes_work_again(
    make: Callable[
        [Callable[[Message], object], Reported, Callable[[], float]], ThreadWorkers | BatchWorkers
    ],
) -> None:
    now, reports, go = [0.0], Reported(), threading.Event()

    def handle(message: Message) -> None:
        assert go.wait(PATIENCE)
        message.ack()

    def alive() -> int:
        return sum(thread.name.startswith("resting-") for thread in threading.enumerate())

    worker_pool = make(handle, reports, lambda: now[0])
    for round_ in range(1, 4):
        go.clear()
        worker_pool.take([lease_of(at, 1, b"%d" % at) for at in range(8)])

        def all_run() -> bool:
            now[0] += 0.1
            worker_pool.wants(1000)
            return len(list(worker_pool.running())) == 8

        until(all_run)
        go.set()
        reports.wait_until(lambda: len(reports.releases) == 8 * round_)  # noqa: B023
        until(lambda: not list(worker_pool.running()))

        def rested() -> bool:
            now[0] += IDLE
            worker_pool.wants(1000)
            return alive() == 1

        until(rested)
    assert worker_pool.close(PATIENCE)
