"""Coroutine callbacks: one task of an event loop for each lease.

Rules
1. One call to the loop begins the tasks of all leases of a sweep.
2. A cancelled task nacks its message and begins no other. A task that is cancelled before its first step never
   runs `_take_all`: a done-callback of the task notices its end.
3. Leases that end in one turn of the loop are reported together. Each report may wake the runner, whose sweep costs
   the loop more than the report itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import cast

from kafka_pubsub.log.joining import CALLBACK, is_closing, wait_over
from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.workers.failure_log import words_of
from kafka_pubsub.subscribe.workers.lease_runner import ACKED, HeldMessage, LeaseRunner, Reports
from kafka_pubsub.subscribe.workers.thread_workers import RUN

__all__ = ["AsyncioWorkers"]

log = logging.getLogger("kafka_pubsub.subscriber")


class AsyncioWorkers:
    """Runs coroutine callbacks on an event loop, at most `workers` at a time."""

    run = RUN
    spread = False
    inline = None

    def __init__(
        self,
        callback: Callable[[Message], Awaitable[object]],
        loop: asyncio.AbstractEventLoop,
        workers: int,
        reports: Reports,
    ) -> None:
        self._callback = callback
        self._loop = loop
        self._workers = workers
        self._reports = reports
        self._lease_runners: set[LeaseRunner] = set()
        #: Tasks that run; the loop itself keeps only weak references.
        self._tasks: dict[LeaseRunner, asyncio.Task[LeaseReport]] = {}
        #: Leases that have ended in this turn of the loop.
        self._finished: list[tuple[LeaseRunner, LeaseReport]] = []
        self._ended = threading.Condition()

    def wants(self, free: int) -> int:
        return min(free, self._workers - len(self._lease_runners))

    def soon(self, free: int) -> tuple[int, int]:
        return self.wants(free), 1

    def take(self, leases: Sequence[Lease]) -> None:
        lease_runners = []
        for lease in leases:
            lease.lease_runner = lease_runner = LeaseRunner(lease, self._reports)
            lease_runners.append(lease_runner)
        self._lease_runners.update(lease_runners)
        try:
            self._loop.call_soon_threadsafe(self._begin, lease_runners)
        except RuntimeError:  # the loop is closed and will never call back
            self._leave(lease_runners)
            for lease_runner in lease_runners:
                self._reports.released(LeaseReport(lease_runner.lease, 0, LeaseOutcome.UNTOUCHED))

    def _begin(self, lease_runners: Sequence[LeaseRunner]) -> None:
        for lease_runner in lease_runners:
            task = self._loop.create_task(self._take_all(lease_runner))
            self._tasks[lease_runner] = task
            task.add_done_callback(partial(self._ended_task, lease_runner))

    def _ended_task(self, lease_runner: LeaseRunner, task: asyncio.Task[LeaseReport]) -> None:
        self._tasks.pop(lease_runner)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a callback's task ended; its message is redelivered", exc_info=error)
        if task.cancelled() or error is not None:
            outcome = LeaseOutcome.NACKED if lease_runner.begun else LeaseOutcome.UNTOUCHED
            lease_runner.let_go()
            report = LeaseReport(lease_runner.lease, lease_runner.done, outcome, error=words_of(error))
        else:
            report = task.result()
        if not self._finished:
            self._loop.call_soon(self._report)
        self._finished.append((lease_runner, report))

    def _report(self) -> None:
        """Reports the leases that have ended in this turn of the loop."""
        finished, self._finished = self._finished, []
        self._reports.released(*(report for _, report in finished))
        self._leave([lease_runner for lease_runner, _ in finished])

    async def _take_all(self, lease_runner: LeaseRunner) -> LeaseReport:
        callback, lease = self._callback, lease_runner.lease
        CALLBACK.set((asyncio.current_task(),))
        for index in range(len(lease.records)):
            message = lease_runner.begin()
            if message is None:
                return LeaseReport(lease, index, LeaseOutcome.UNTOUCHED)
            began = time.monotonic()
            try:
                await callback(message)
            except asyncio.CancelledError as error:
                lease_runner.stopped = True
                if message._state != ACKED:
                    cast("HeldMessage", message)._fail()
                    lease_runner._error = lease_runner._error or words_of(error)
            except Exception as error:
                lease_runner.raised(message, error)
            self._reports.callbacks.add(time.monotonic() - began)
            if message._state != ACKED:
                return lease_runner.left(message)
            lease_runner.done = index + 1
        lease_runner.let_go()
        return LeaseReport(lease, len(lease.records), LeaseOutcome.FINISHED)

    def _leave(self, lease_runners: Sequence[LeaseRunner]) -> None:
        with self._ended:
            self._lease_runners.difference_update(lease_runners)
            if not self._lease_runners:
                self._ended.notify_all()

    def running(self) -> Iterable[LeaseRunner]:
        return [lease_runner for lease_runner in self._lease_runners.copy() if lease_runner.begun]

    def close(self, timeout: float | None) -> bool:
        return wait_over(self._ended, self._over, timeout)

    def _over(self) -> bool:
        return all(is_closing(self._tasks.get(each)) for each in self._lease_runners.copy())
