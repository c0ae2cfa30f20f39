"""The stream: an open `pull` of a subscription. It is a context manager, and a future of its end.

Rules
1. A stream ends once: closed, cancelled, or failed. Its result is None, or the exception that it failed with.
2. Closing stops fetching, lets running callbacks end, commits, and leaves the group. A callback that doesn't end in
   time goes on, and is logged; its message is delivered again by another member.
3. The first caller of `close` does the work; the others wait for it. A callback may be among them: no close waits for
   its end (`joining`).
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kafka_pubsub.log.joining import closing
from kafka_pubsub.subscribe.stream.reading import StreamPart
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from kafka_pubsub.subscribe.workers.thread_workers import WorkerPool

__all__ = ["CLOSE_TIMEOUT", "Stats", "Stream"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds that closing waits for callbacks by default: longer than most callbacks, and shorter than a supervisor
#: waits before it kills a process.
CLOSE_TIMEOUT = 30.0


@dataclass(frozen=True)
class Stats:
    """Counters of a stream.

    `received` records read, `acked` finished, `redelivered` deliveries after the first, `stale` acks and nacks that
    came too late, `in_flight` leased now, `buffered_bytes` held in this process, `paused` partitions
    that aren't fetched for lack of room, `partitions` that are ours, `moved` messages that went to the retry topic
    (nacked, or behind one that was), `dead_lettered` messages.
    """

    received: int
    acked: int
    redelivered: int
    stale: int
    commits: int
    in_flight: int
    buffered_bytes: int
    paused: tuple[int, ...]
    partitions: tuple[int, ...]
    moved: int = 0
    dead_lettered: int = 0

    @property
    def relocated(self) -> int:
        """Is `moved` now; this name warns."""
        text = "Stats.relocated is Stats.moved now, and goes with version 0.2.0"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.moved


class Stream:
    """A subscription being pulled.

    Example:
        with sub.pull(handle) as stream:
            stream.result(timeout=60)   # TimeoutError while all is well
    """

    def __init__(
        self, runner: StreamRunner, worker_pool: WorkerPool, on_closed: Callable[[Stream], None]
    ) -> None:
        self._runner = runner
        self._worker_pool = worker_pool
        self._on_closed = on_closed
        self._part = StreamPart(runner)
        # A caller may call `close` again meanwhile: from a done-callback, or a signal handler.
        self._closing = threading.RLock()
        #: How many callbacks still ran when it was closed; 0 until then.
        self._left = 0
        self._listening = threading.Lock()
        # Callbacks of the end; None once they were called.
        self._listeners: list[Callable[[Stream], object]] | None = []

    def result(self, timeout: float | None = None) -> None:
        """Waits for the end. Raises the error that the stream failed with; `TimeoutError` if it is still running."""
        self._wait(timeout)
        if self._runner.failure is not None:
            raise self._runner.failure

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Returns the error that the stream failed with, None if it was closed; waits for the end as `result` does."""
        self._wait(timeout)
        return self._runner.failure

    def _wait(self, timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        ended = self._runner.inbox.ended
        while not ended.is_set():
            left = 0.5 if until is None else min(0.5, until - time.monotonic())
            if left <= 0:
                raise TimeoutError("the stream goes on")
            ended.wait(left)  # in slices, so that Ctrl-C gets through on every platform

    def done(self) -> bool:
        """Returns whether it has ended."""
        ended = self._runner.inbox.ended
        return ended.is_set()

    def add_done_callback(self, callback: Callable[[Stream], object]) -> None:
        """Calls `callback` with the stream when it has ended, at once if it has; it must neither block nor raise."""
        with self._listening:
            if self._listeners is not None:
                self._listeners.append(callback)
                return
        callback(self)

    def remove_done_callback(self, callback: Callable[[Stream], object]) -> None:
        """Forgets a callback; does nothing if it was called already."""
        with self._listening:
            if self._listeners is not None and callback in self._listeners:
                self._listeners.remove(callback)

    def cancel(self) -> bool:
        """Begins to close and returns at once; `result` waits for the end. False if it has ended already."""
        if self.done():
            return False
        threading.Thread(target=self.close, name="kafka_pubsub-close", daemon=True).start()
        return True

    def _drain(self) -> None:
        """Begins no more callbacks, and returns at once; `close` waits for those that run."""
        if not self.done():
            drain = self._runner.begin_nothing_more
            threading.Thread(target=drain, name="kafka_pubsub-drain", daemon=True).start()

    def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Stops fetching, lets callbacks end (at most `timeout` seconds), commits, leaves the group."""
        with closing(threading.current_thread()), self._closing:
            if self.done():
                return
            self._close(timeout)

    def _close(self, timeout: float | None) -> None:
        runner = self._runner
        runner.begin_nothing_more()
        if not self._worker_pool.close(timeout):
            running = [lease_runner.lease for lease_runner in self._worker_pool.running()]
            log.warning(
                "closed while callbacks still run; their messages will be delivered again: %s", running
            )
            self._left = len(running)
        runner.finish()
        self._on_closed(self)
        with self._listening:
            listeners, self._listeners = self._listeners, None
        for listener in listeners or ():
            listener(self)

    @property
    def joined(self) -> bool:
        """Whether it is a member of its group, with or without partitions."""
        return self._runner.rebalances.joined

    @property
    def stats(self) -> Stats:
        """Returns the stream's counters as they are now."""
        coordinator = self._runner.coordinator
        partitions = coordinator.partitions
        counts, held = coordinator.counts, partitions.held()
        return Stats(
            received=counts.received,
            acked=partitions.finished(),
            redelivered=counts.redelivered,
            stale=counts.stale,
            commits=counts.commits,
            in_flight=coordinator.in_flight(),
            buffered_bytes=sum(each.bytes for each in held.values()),
            paused=tuple(sorted({each.partition for each in partitions.gate.paused})),
            partitions=tuple(sorted({each.partition for each in held})),
            moved=counts.moved,
            dead_lettered=counts.dead_lettered,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "ended" if self.done() else "open"
        return f"<Stream of {self._runner.subscription!r}, {state}>"
