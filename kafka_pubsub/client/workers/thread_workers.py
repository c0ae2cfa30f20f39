"""Crews run the callbacks of a stream: threads of our own, a user's executor, batches, or none (receive).

Theory. The runner gives a crew leases; the crew wraps each in a holder, walks it somewhere, and reports the
release. Crews differ only in where the walking happens.

Rules
1. `take` never blocks: it is called by the runner.
2. `walking` lists the holders whose handlers may be running now, so that the runner can see how far they are.
3. A crew that was closed lets its running handlers end and begins nothing more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from queue import Empty, SimpleQueue
from typing import Protocol

from kafka_pubsub.client.workers.lease_runner import BatchHolder, Holder, Reports
from kafka_pubsub.core.delivery.leases import Lease
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.model import Message

__all__ = ["BatchCrew", "Callback", "Crew", "ExecutorCrew", "ThreadCrew"]

log = logging.getLogger("kafka_pubsub.subscriber")

Callback = Callable[[Message], object]

#: Records that a key hands over at once. Long enough that a round trip through the runner is rare, short enough
#: that the ack map has room for many keys.
RUN = 128


#: Threads that are hired without a look at the pace.
AT_ONCE = 2
#: Seconds between two looks at the pace: some switches of the interpreter's lock, which last 5 ms each.
LOOK = 0.02
#: Seconds for a record below which a thread is quick: a callback that waits for anything outside takes longer.
QUICK = 0.0001


class Inline(Protocol):
    """What a crew has to do with callbacks that the fetcher calls itself (`inline`)."""

    callback: Callback

    def spares(self) -> bool:
        """Whether one more callback may run beside those of the crew."""

    def lend(self, lent: bool) -> None:
        """From now on, or no longer, the fetcher counts as a worker."""

    def busy(self) -> int:
        """How many of its threads are with a lease."""

    def put_aside(self, aside: deque[Holder] | None) -> None:
        """From now on leases go to `aside`, for the fetcher to take, those that wait too; None: to the crew again."""

    def queue(self, holders: Iterable[Holder]) -> None:
        """The crew takes these."""

    def adopt(self, holder: Holder, thread: threading.Thread) -> None:
        """`thread` was the fetcher; until its callback ends it is a worker."""


class Crew(Protocol):
    """Runs the callbacks of one stream. `inline` is None where no other thread may call them."""

    run: int
    spread: bool

    @property
    def inline(self) -> Inline | None: ...

    def wants(self, free: int) -> int:
        """How many leases to ask for when `free` more messages may be started."""

    def take(self, leases: Sequence[Lease]) -> None: ...
    def walking(self) -> Iterable[Holder]: ...
    def close(self, timeout: float | None) -> bool:
        """Waits for handlers that run; False if one still runs after `timeout` seconds."""


class ThreadCrew:
    """Threads of our own: one callback each.

    As many as the callbacks keep waiting: where they only compute, one more thread makes all of them slower, because
    one at a time runs anyhow. So a thread is hired when leases wait and those that there are take long. It can't be
    told from here why they do; where they only wait for each other, the fetcher finds out (`walks`).
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
        self._workers = workers
        self._reports = reports
        self._name = name
        self._clock = clock
        self._queue: SimpleQueue[Holder | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        #: Threads that weren't told to end.
        self._hired = 0
        #: Whether the fetcher is walking now, and former fetchers with what they hold. Empty: none had to be left.
        self._lent = False
        #: Where leases go that the fetcher takes itself; None: to the threads.
        self._aside: deque[Holder] | None = None
        self._adopted: list[tuple[Holder, threading.Thread]] = []
        #: What each thread walks now, by its number; None while it waits.
        self._current: list[Holder | None] = []
        #: Records that each thread has finished, in leases that it has done with; and how many leases.
        self._walked: list[int] = []
        self._ended: list[int] = []
        #: Leases that threads were given.
        self._handed = 0
        #: When the pace was last looked at, and the records finished until then.
        self._looked_at = 0.0
        self._looked_upon = 0

    @property
    def inline(self) -> Inline | None:
        return self

    def spares(self) -> bool:
        return self.busy() < self._places() + self._lent

    def busy(self) -> int:
        return min(self._hired, self._handed - sum(self._ended))

    def lend(self, lent: bool) -> None:
        self._lent = lent

    def put_aside(self, aside: deque[Holder] | None) -> None:
        self._aside = aside
        if aside is not None:
            self._take_back(aside)

    def _take_back(self, aside: deque[Holder]) -> None:
        """What no thread has begun."""
        for _ in range(self._queue.qsize()):
            try:
                holder = self._queue.get_nowait()
            except Empty:
                return
            if holder is None:
                self._queue.put(None)
            else:
                self._handed -= 1
                aside.append(holder)

    def adopt(self, holder: Holder, thread: threading.Thread) -> None:
        self._adopted.append((holder, thread))
        if self._hired > self._places():
            self._hired -= 1
            self._queue.put(None)

    def _places(self) -> int:
        """How many threads there may be."""
        if self._adopted:
            self._adopted = [each for each in self._adopted if each[1].is_alive()]
        return self._workers - self._lent - len(self._adopted)

    def wants(self, free: int) -> int:
        if self._aside is not None:
            return free
        places = self._places()
        if self._hired < places and self._queue.qsize():
            self._hire_if_slow()
        return free if self._hired <= places and places else 0

    def take(self, leases: Sequence[Lease]) -> None:
        reports = self._reports
        holders = [Holder(lease, reports) for lease in leases]
        for holder in holders:
            holder.lease.holder = holder
        if self._aside is not None:
            self._aside.extend(holders)
        else:
            self.queue(holders)

    def queue(self, holders: Iterable[Holder]) -> None:
        for holder in holders:
            self._handed += 1
            self._queue.put(holder)
        while self._hired < min(AT_ONCE, self._places(), self._queue.qsize()):
            self._hire()

    def _hire_if_slow(self) -> None:
        now, count = self._clock(), self._hired
        seconds = now - self._looked_at
        if seconds < LOOK:
            return
        finished = sum(self._walked) + sum(holder.done for holder in self.walking())
        if finished - self._looked_upon < seconds * count / QUICK:
            for _ in range(min(count, self._places() - count, self._queue.qsize())):
                self._hire()
        self._looked_at, self._looked_upon = now, finished

    def _hire(self) -> None:
        number = len(self._threads)
        self._hired += 1
        self._current.append(None)
        self._walked.append(0)
        self._ended.append(0)
        thread = threading.Thread(
            target=self._work, args=(number,), name=f"{self._name}-{number}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self, number: int) -> None:
        queue, current, callback, released = (
            self._queue,
            self._current,
            self.callback,
            self._reports.released,
        )
        walked, ended = self._walked, self._ended
        while (holder := queue.get()) is not None:
            current[number] = holder
            released(holder.walk(callback))
            current[number] = None
            walked[number] += holder.done
            ended[number] += 1

    def walking(self) -> Sequence[Holder]:
        walking = [holder for holder in self._current if holder is not None]
        return walking + [holder for holder, _ in self._adopted]

    def close(self, timeout: float | None) -> bool:
        for _ in self._threads:
            self._queue.put(None)
        return _join([*self._threads, *(thread for _, thread in self._adopted)], timeout)


class ExecutorCrew:
    """A user's executor: one submitted walk for each lease, at most `workers` at a time."""

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
        #: Submitted and not ended.
        self._holders: set[Holder] = set()
        self._ended = threading.Condition()

    def wants(self, free: int) -> int:
        return min(free, self._workers - len(self._holders))

    def take(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            lease.holder = holder = Holder(lease, self._reports)
            self._holders.add(holder)
            try:
                self._executor.submit(self._walk, holder)
            except RuntimeError as error:  # what executors raise that were shut down
                self._holders.discard(holder)
                raise FailedPrecondition(
                    f"executor: it takes no more work ({error}); pull with another one"
                ) from error

    def _walk(self, holder: Holder) -> None:
        self._reports.released(holder.walk(self._callback))
        with self._ended:
            self._holders.discard(holder)
            self._ended.notify_all()

    def walking(self) -> Iterable[Holder]:
        return [holder for holder in self._holders.copy() if holder.begun]

    def close(self, timeout: float | None) -> bool:
        with self._ended:
            return self._ended.wait_for(lambda: not self._holders, timeout)


class BatchCrew:
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
    ) -> None:
        self.run = size
        self._callback = callback
        self._size = size
        self._latency = latency
        self._workers = workers
        self._reports = reports
        self._queue: SimpleQueue[BatchHolder | None] = SimpleQueue()
        self._name = name
        self._threads: list[threading.Thread] = []
        self._current: list[Sequence[BatchHolder]] = [()] * workers

    def wants(self, free: int) -> int:
        return min(free, self._size * self._workers)

    def take(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            lease.holder = holder = BatchHolder(lease, self._reports)
            self._queue.put(holder)
        while len(self._threads) < self._workers and self._queue.qsize():
            number = len(self._threads)
            thread = threading.Thread(
                target=self._work, args=(number,), name=f"{self._name}-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _work(self, number: int) -> None:
        while (first := self._queue.get()) is not None:
            batch = self._gather(first)
            self._current[number] = batch
            self._call(batch)
            self._current[number] = ()

    def _gather(self, first: BatchHolder) -> list[BatchHolder]:
        batch, count = [first], len(first.lease.records)
        until = time.monotonic() + self._latency
        while count < self._size and count == len(batch):
            try:
                holder = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
            if holder is None or len(holder.lease.records) > 1:
                self._queue.put(holder)
                break
            batch.append(holder)
            count += 1
        return batch

    def _call(self, batch: Sequence[BatchHolder]) -> None:
        messages = [message for holder in batch for message in holder.begin_run()]
        raised: BaseException | None = None
        try:
            if messages:
                self._callback(messages)
        except BaseException as error:  # see Holder.walk
            raised = error
            log.exception("the batch callback raised; what it hadn't acked is redelivered")
        for holder in batch:
            self._reports.released(holder.end_run(raised))

    def walking(self) -> Iterable[Holder]:
        return [holder for batch in self._current for holder in batch]

    def close(self, timeout: float | None) -> bool:
        for _ in self._threads:
            self._queue.put(None)
        return _join(self._threads, timeout)


def _join(threads: Sequence[threading.Thread], timeout: float | None) -> bool:
    until = None if timeout is None else time.monotonic() + timeout
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() and thread is not threading.current_thread() for thread in threads)
