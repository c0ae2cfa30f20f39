"""The threads of a worker pool: they take items from one queue, and idle threads end after a while.

Theory. A thread that waits costs memory, and a process may have forty streams. A thread is never interrupted while it
waits: the runner, which alone fills the queue, puts a marker into it that ends the thread that takes it. Items behind
the marker are left to another thread, so no wakeup can be lost. The items that ran within some seconds are those that
were queued by their end and hadn't ended at their beginning: more threads than that weren't needed.

Rules
1. `put`, `hire`, `dismiss` and `rest` are for the runner only. Each thread writes its own counts, and ends only
   itself.
2. One thread stays, so that a message after a pause finds it, with what the callback stores for its thread.
3. What a thread has done still counts when it has ended.
4. A marker isn't an item that waits: a thread that is started for it would end at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

from kafka_pubsub.log.joining import StreamThread

__all__ = ["IDLE", "Worker", "Workers", "join_all"]

#: Seconds after which a thread that wasn't needed ends; until twice that, since they are counted in rounds. A busy
#: stream pauses for much less, and a thread is made in 0.1 ms.
IDLE = 5.0
#: Threads that stay.
LEAST = 1

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
        worker.thread = StreamThread(self._run, worker, f"{self._name}-{self._made}")
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


def join_all(threads: Sequence[threading.Thread], timeout: float | None) -> bool:
    """Waits for threads, except the calling one; returns False if one still runs after `timeout` seconds."""
    me = threading.current_thread()
    until = None if timeout is None else time.monotonic() + timeout
    for thread in threads:
        if thread is not me:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() and thread is not me for thread in threads)
