"""Worker pools run the callbacks of a stream: threads of our own, a user's executor, batches, or none (receive).

Theory. The runner gives a worker pool leases; the worker pool makes a lease runner for each, runs it on some thread,
and reports its outcome. Worker pools differ only in the thread.

Rules
1. `take` never blocks: it is called by the runner.
2. `running` lists the lease runners whose callbacks may be running now, so that the runner can see their progress.
3. A worker pool that was closed lets its running callbacks end and begins nothing more.

A thread that waits costs memory, and a process may have forty streams. A thread is never interrupted
while it waits: the runner, which alone fills the queue, puts a marker into it that ends the thread that takes it. Items
behind the marker are left to another thread, so no wakeup can be lost. The items that ran within some seconds are those
that were queued by their end and hadn't ended at their beginning: more threads than that weren't needed.

4. `put`, `hire`, `dismiss` and `rest` are for the runner only. Each thread writes its own counts, and ends only
   itself.
5. One thread stays, so that a message after a pause finds it, with what the callback stores for its thread.
6. What a thread has done still counts when it has ended.
7. A marker isn't an item that waits: a thread that is started for it would end at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.log.joining import is_closing, join_all, wait_over
from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.workers.failure_log import log_raised
from kafka_pubsub.subscribe.workers.lease_runner import ACKED, BatchLeaseRunner, LeaseRunner, Reports

__all__ = [
    "IDLE",
    "BatchWorkers",
    "Callback",
    "ExecutorWorkers",
    "ThreadWorkers",
    "Worker",
    "WorkerPool",
    "Workers",
]

#: Seconds after which a thread that wasn't needed ends; until twice that, since they are counted in rounds. A busy
#: stream pauses for much less, and a thread is made in 0.1 ms.
IDLE = 5.0
#: Threads that stay.
LEAST = 1

#: Outcomes of leases whose last message is neither among the acked ones nor untouched.
_BEGUN = (LeaseOutcome.NACKED, LeaseOutcome.KEPT)

Item = TypeVar("Item")


class Worker(Generic[Item]):
    """A thread of the pool, with counts of what it has finished."""

    __slots__ = ("current", "done", "ended", "thread")

    def __init__(self) -> None:
        self.thread: threading.Thread
        #: The items that it runs now.
        self.current: Sequence[Item] = ()
        #: The number of items that have ended, and of the records in them that were finished.
        self.ended = self.done = 0


class Workers(Generic[Item]):
    """The threads of one worker pool."""

    def __init__(
        self,
        work: Callable[[Item, Worker[Item]], None],
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue: SimpleQueue[Item | None] = SimpleQueue()
        #: The number of threads without a marker that ends them.
        self.hired = 0
        #: The number of items that threads were given.
        self.handed = 0
        self._work = work
        self._name = name
        self._clock = clock
        self._all: list[Worker[Item]] = []
        self._made = 0
        #: The counts of threads that have ended.
        self._past: Worker[Item] = Worker()
        #: When to count next which threads were needed, and the items that had ended when they were counted last.
        self._count_at = float("-inf")
        self._ended_before = 0

    def put(self, item: Item) -> None:
        """Queues an item, which one of the threads takes."""
        self.handed += 1
        self.queue.put(item)

    def hire(self) -> None:
        """Starts one more thread."""
        worker: Worker[Item] = Worker()
        name = f"{self._name}-{self._made}"
        worker.thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
        self._made += 1
        self.hired += 1
        self._all.append(worker)
        worker.thread.start()

    def _run(self, worker: Worker[Item]) -> None:
        queue, work = self.queue, self._work
        while (item := queue.get()) is not None:
            work(item, worker)

    def dismiss(self) -> None:
        """Ends one thread, once it has nothing to do."""
        self.hired -= 1
        self.queue.put(None)

    def rest(self) -> None:
        """Ends the threads that weren't needed for some seconds; call it now and then."""
        now = self._clock()
        if now < self._count_at:
            return
        for _ in range(self.hired - max(LEAST, self.handed - self._ended_before)):
            self.dismiss()
        self._forget_ended()
        self._count_at, self._ended_before = now + IDLE, self.ended

    def _forget_ended(self) -> None:
        past, alive = self._past, []
        for worker in self._all:
            if worker.thread.is_alive():
                alive.append(worker)
            else:
                past.ended += worker.ended
                past.done += worker.done
        self._all = alive

    @property
    def waiting(self) -> int:
        """The number of items that no thread has taken yet."""
        if len(self._all) > self.hired:
            self._forget_ended()
        return max(0, self.queue.qsize() - (len(self._all) - self.hired))

    @property
    def busy(self) -> int:
        """The number of threads that work on an item."""
        return max(0, min(self.hired, self.handed - self.ended))

    @property
    def ended(self) -> int:
        """The number of items that have ended."""
        return self._past.ended + sum(worker.ended for worker in self._all)

    @property
    def done(self) -> int:
        """The number of records that were finished in these items."""
        return self._past.done + sum(worker.done for worker in self._all)

    def running(self) -> list[Item]:
        """Returns the items that threads work on now."""
        return [item for worker in self._all for item in worker.current]

    def close(self, timeout: float | None, others: Sequence[threading.Thread] = ()) -> bool:
        """Waits for the threads to end, and for `others`; False if one still runs after `timeout` seconds."""
        for _ in self._all:
            self.queue.put(None)
        return join_all([*(worker.thread for worker in self._all), *others], timeout)


Callback = Callable[[Message], object]


def _timed(lease_runner: LeaseRunner, callback: Callback, reports: Reports) -> LeaseReport:
    """Runs a lease, and counts how long that took: once for all its messages."""
    began = time.monotonic()
    report = lease_runner.run(callback)
    reports.callbacks.add(time.monotonic() - began, report.done + (report.outcome in _BEGUN))
    return report


#: Records that one lease of a key has at most. Enough that a round trip through the runner is rare, and few enough
#: that the metadata has room for many keys.
RUN = 128


#: Threads that are started without a check of the pace.
AT_ONCE = 2
#: Seconds between two checks of the pace: some switches of the interpreter's lock, which take 5 ms each.
LOOK = 0.02
#: Seconds within which what is handed out of lanes begins: a message of a higher priority waits for it.
SOON = 0.005
#: Seconds for a record below which a thread is quick: a callback that waits for I/O takes longer.
QUICK = 0.0001


class Inline(Protocol):
    """The part of a worker pool for callbacks that the fetcher calls itself (`inline_runner`)."""

    callback: Callback

    def spares(self) -> bool:
        """Returns whether one more callback may run beside those of the worker pool."""

    def lend(self, lent: bool) -> None:
        """Sets whether the fetcher counts as a worker."""

    def busy(self) -> int:
        """Returns how many of its threads have a lease."""

    def put_aside(self, aside: deque[LeaseRunner] | None) -> None:
        """Sends leases to `aside`, for the fetcher, waiting ones included; None: to the pool again."""

    def queue(self, lease_runners: Iterable[LeaseRunner]) -> None:
        """Queues lease runners for the worker pool's threads."""

    def adopt(self, lease_runner: LeaseRunner, thread: threading.Thread) -> None:
        """Counts `thread`, which was the fetcher, as a worker until its callback ends."""


class WorkerPool(Protocol):
    """Runs the callbacks of one stream. `inline` is None where no other thread may call them."""

    run: int
    spread: bool

    @property
    def inline(self) -> Inline | None: ...

    def wants(self, free: int) -> int:
        """Returns how many leases to ask for when `free` more messages may be started."""

    def soon(self, free: int) -> tuple[int, int]:
        """Returns how many leases to ask for that begin soon, and the most records of each."""

    def take(self, leases: Sequence[Lease]) -> None: ...
    def running(self) -> Iterable[LeaseRunner]: ...
    def close(self, timeout: float | None) -> bool:
        """Waits for running callbacks; returns False if one still runs after `timeout` seconds."""


class ThreadWorkers:
    """Threads that this package starts; each runs one callback at a time.

    A thread is started when leases wait and the running callbacks take long. Where callbacks only compute, one more
    thread makes all of them slower, because the interpreter runs one thread at a time; the fetcher finds that out
    (`inline_scheduler`). Idle threads end.
    """

    run = RUN
    spread = False

    def __init__(
        self,
        callback: Callback,
        workers: int,
        reports: Reports,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.callback = callback
        self._most = workers
        self._reports = reports
        self._clock = clock
        self._workers: Workers[LeaseRunner] = Workers(self._run, name, clock)
        #: Whether the fetcher runs callbacks now, and former fetchers with their lease runners. Empty: there are none.
        self._lent = False
        #: The queue of leases for the fetcher; None: leases go to the threads.
        self._aside: deque[LeaseRunner] | None = None
        self._adopted: list[tuple[LeaseRunner, threading.Thread]] = []
        #: When the pace was last checked, and the records finished until then.
        self._looked_at = 0.0
        self._looked_upon = 0
        #: Records by the second as last counted, when that was, and the records finished until then.
        self._pace = self._paced_at = 0.0
        self._paced = 0

    @property
    def inline(self) -> Inline | None:
        return self

    def spares(self) -> bool:
        return self.busy() < self._places() + self._lent

    def busy(self) -> int:
        return self._workers.busy

    def lend(self, lent: bool) -> None:
        self._lent = lent

    def put_aside(self, aside: deque[LeaseRunner] | None) -> None:
        self._aside = aside
        if aside is not None:
            self._take_back(aside)

    def _take_back(self, aside: deque[LeaseRunner]) -> None:
        """Takes back the lease runners that no thread has begun."""
        queue = self._workers.queue
        for _ in range(queue.qsize()):
            try:
                lease_runner = queue.get_nowait()
            except Empty:
                return
            if lease_runner is None:
                queue.put(None)
            else:
                self._workers.handed -= 1
                aside.append(lease_runner)

    def adopt(self, lease_runner: LeaseRunner, thread: threading.Thread) -> None:
        self._adopted.append((lease_runner, thread))
        if self._workers.hired > self._places():
            self._workers.dismiss()

    def _places(self) -> int:
        """Returns how many threads there may be."""
        if self._adopted:
            self._adopted = [each for each in self._adopted if each[1].is_alive()]
        return self._most - self._lent - len(self._adopted)

    def wants(self, free: int) -> int:
        workers = self._workers
        workers.rest()
        if self._aside is not None:
            return free
        places = self._places()
        if workers.hired < places and workers.waiting:
            self._hire_if_slow()
        return free if workers.hired <= places and places else 0

    def soon(self, free: int) -> tuple[int, int]:
        wanted = self.wants(free)
        workers, places = self._workers, self._places()
        rate = self._records_per_second()
        leases = places + int(rate * SOON) - workers.busy - workers.waiting
        run = int(rate * SOON / 2 / max(1, workers.hired))
        return max(0, min(wanted, leases)), max(1, min(self.run, run))

    def _records_per_second(self) -> float:
        """Returns how many records the threads finished lately, by the second."""
        now, workers = self._clock(), self._workers
        seconds = now - self._paced_at
        if seconds >= LOOK:
            finished = workers.done + sum(lease_runner.done for lease_runner in self.running())
            self._pace = max(0.0, (finished - self._paced) / seconds)
            self._paced_at, self._paced = now, finished
        return self._pace

    def take(self, leases: Sequence[Lease]) -> None:
        reports = self._reports
        lease_runners = [LeaseRunner(lease, reports) for lease in leases]
        for lease_runner in lease_runners:
            lease_runner.lease.lease_runner = lease_runner
        if self._aside is not None:
            self._aside.extend(lease_runners)
        else:
            self.queue(lease_runners)

    def queue(self, lease_runners: Iterable[LeaseRunner]) -> None:
        workers = self._workers
        for lease_runner in lease_runners:
            workers.put(lease_runner)
        while workers.hired < min(AT_ONCE, self._places(), workers.waiting):
            workers.hire()

    def _hire_if_slow(self) -> None:
        """Starts three more threads for each, if callbacks take long."""
        workers, now = self._workers, self._clock()
        count, seconds = max(1, workers.hired), now - self._looked_at
        if seconds < LOOK:
            return
        finished = workers.done + sum(lease_runner.done for lease_runner in self.running())
        if finished - self._looked_upon < seconds * count / QUICK:
            for _ in range(min(3 * count, self._places() - workers.hired, workers.waiting)):
                workers.hire()
        self._looked_at, self._looked_upon = now, finished

    def _run(self, lease_runner: LeaseRunner, worker: Worker[LeaseRunner]) -> None:
        worker.current = (lease_runner,)
        self._reports.released(_timed(lease_runner, self.callback, self._reports))
        worker.current = ()
        worker.done += lease_runner.done
        worker.ended += 1

    def running(self) -> Sequence[LeaseRunner]:
        return self._workers.running() + [lease_runner for lease_runner, _ in self._adopted]

    def close(self, timeout: float | None) -> bool:
        return self._workers.close(timeout, [thread for _, thread in self._adopted])


class ExecutorWorkers:
    """A user's executor: one submitted call for each lease, at most `workers` at a time."""

    run = RUN
    spread = False
    inline = None

    def __init__(self, callback: Callback, executor: Executor, workers: int, reports: Reports) -> None:
        if isinstance(executor, ProcessPoolExecutor):
            raise InvalidArgument(
                "executor: a process pool can't ack messages; use threads, or more processes that pull"
            )
        self._callback = callback
        self._executor = executor
        self._workers = workers
        self._reports = reports
        #: The lease runners that were submitted and haven't ended, and their threads once they have begun.
        self._lease_runners: dict[LeaseRunner, threading.Thread | None] = {}
        self._ended = threading.Condition()

    def wants(self, free: int) -> int:
        return min(free, self._workers - len(self._lease_runners))

    def soon(self, free: int) -> tuple[int, int]:
        return self.wants(free), 1

    def take(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            lease.lease_runner = lease_runner = LeaseRunner(lease, self._reports)
            self._lease_runners[lease_runner] = None
            try:
                submitted = self._executor.submit(self._run, lease_runner)
            except RuntimeError as error:  # an executor that was shut down raises this
                self._lease_runners.pop(lease_runner)
                raise FailedPrecondition(
                    f"executor: it takes no more work ({error}); pull with another one"
                ) from error
            submitted.add_done_callback(partial(self._end, lease_runner))

    def _run(self, lease_runner: LeaseRunner) -> None:
        self._lease_runners[lease_runner] = threading.current_thread()
        self._leave(lease_runner, _timed(lease_runner, self._callback, self._reports))

    def _end(self, lease_runner: LeaseRunner, submitted: Future[None]) -> None:
        """Gives a lease back that the executor hasn't run: it was shut down, or is broken."""
        if lease_runner in self._lease_runners:
            lease_runner.let_go()
            self._leave(lease_runner, LeaseReport(lease_runner.lease, 0, LeaseOutcome.UNTOUCHED))

    def _leave(self, lease_runner: LeaseRunner, report: LeaseReport) -> None:
        self._reports.released(report)
        with self._ended:
            self._lease_runners.pop(lease_runner)
            self._ended.notify_all()

    def running(self) -> Iterable[LeaseRunner]:
        return [lease_runner for lease_runner in self._lease_runners.copy() if lease_runner.begun]

    def close(self, timeout: float | None) -> bool:
        threads = self._lease_runners
        return wait_over(self._ended, lambda: all(map(is_closing, threads.copy().values())), timeout)


#: Seconds between two looks for one more message of a batch.
POLL = 0.002


class BatchWorkers:
    """Threads whose callback gets a list: messages of distinct keys, or one key's run."""

    spread = True
    inline = None

    def __init__(
        self,
        callback: Callable[[list[Message]], object],
        size: int,
        latency: float,
        workers: int,
        reports: Reports,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run = size
        self._callback = callback
        self._size = size
        self._latency = latency
        self._most = workers
        self._reports = reports
        self._workers: Workers[BatchLeaseRunner] = Workers(self._work, name, clock)

    def wants(self, free: int) -> int:
        self._workers.rest()
        return min(free, self._size * self._most)

    def soon(self, free: int) -> tuple[int, int]:
        handed = self._workers.busy + self._workers.waiting
        return max(0, min(self.wants(free), self._size * self._most - handed)), self.run

    def take(self, leases: Sequence[Lease]) -> None:
        workers = self._workers
        for lease in leases:
            lease.lease_runner = lease_runner = BatchLeaseRunner(lease, self._reports)
            workers.put(lease_runner)
        while workers.hired < self._most and workers.waiting:
            workers.hire()

    def _work(self, first: BatchLeaseRunner, worker: Worker[BatchLeaseRunner]) -> None:
        batch = worker.current = self._gather(first)
        self._call(batch)
        worker.current = ()
        worker.ended += len(batch)

    def _gather(self, first: BatchLeaseRunner) -> list[BatchLeaseRunner]:
        queue = self._workers.queue
        batch, count = [first], len(first.lease.records)
        until = time.monotonic() + self._latency
        while count < self._size and count == len(batch):
            try:
                lease_runner = queue.get_nowait()
            except Empty:
                left = until - time.monotonic()
                if left <= 0:
                    break
                # A `get` with a timeout may wait for ever: CPython forgets the time if another thread takes the item.
                time.sleep(min(left, POLL))
                continue
            if lease_runner is None or len(lease_runner.lease.records) > 1:
                queue.put(lease_runner)
                break
            batch.append(lease_runner)
            count += 1
        return batch

    def _call(self, batch: Sequence[BatchLeaseRunner]) -> None:
        messages = [message for lease_runner in batch for message in lease_runner.begin_run()]
        raised: BaseException | None = None
        began = time.monotonic()
        try:
            if messages:
                self._callback(messages)
        except BaseException as error:  # see `LeaseRunner.run`
            raised = error
            log_raised([each for each in messages if each._state != ACKED] or messages, error)
        self._reports.callbacks.add(time.monotonic() - began, len(messages))
        for lease_runner in batch:
            self._reports.released(lease_runner.end_run(raised))

    def running(self) -> Iterable[LeaseRunner]:
        return self._workers.running()

    def close(self, timeout: float | None) -> bool:
        return self._workers.close(timeout)
