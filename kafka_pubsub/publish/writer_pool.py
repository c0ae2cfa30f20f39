"""Writers that topics with equal settings share; one thread for each writer serves its delivery reports.

Rules
1. The report thread calls `poll` and `flush`; while it stands by, one publisher at a time calls `poll`. So the reports
   of a writer come one after the other.
2. A writer lives until the pool is closed, so that new topics can use its connections.
3. The pool renews the topic settings of its publishers in the background, never when a message is published.
4. A process that ends without `close()` flushes for up to `AT_EXIT_S`. A forked child owns no writer and does nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import FailedPrecondition, PublishError, PubSubError
from kafka_pubsub.log.ports import DeliveryReport, LogWriter
from kafka_pubsub.model import Header
from kafka_pubsub.publish.deferred_signals import signals_wait
from kafka_pubsub.publish.future import CallbackThread

__all__ = [
    "ANY_PARTITION",
    "AT_EXIT_S",
    "NOW",
    "NO_CHANNEL",
    "Channel",
    "ReportThread",
    "WriterPool",
    "publish_error",
]

# Seconds. A report ends the wait at once; this only bounds how late the thread notices a flush or a close.
_POLL_S: Final = 0.1

# Seconds. A fast publisher serves reports every 2 to 4 ms; the report thread takes over this long after the last time.
_STAND_BY_S: Final = 0.01

#: Seconds between two renewals of a topic that is published to; one renewal is two requests.
RENEW_S: Final = 30.0

# Seconds between two renewals after an error, so that a series of errors causes one renewal.
_RENEW_SOON_S: Final = 1.0

#: Seconds that a process waits at its end for messages that were published and not flushed.
AT_EXIT_S: Final = 10.0

_log = logging.getLogger("kafka_pubsub.publish")


class _Publisher(Protocol):
    def renew(self) -> None: ...
    def flush(self, timeout: float | None = None) -> None: ...


#: Stands for the key's partition, or for any partition if the message has no key.
ANY_PARTITION: Final = -1

#: Stands for the time of the call.
NOW: Final = 0


class QuickAppend(Protocol):
    """Appends a record. `(topic, value, key, ANY_PARTITION, report)` is the shortest call, for one without headers."""

    def __call__(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int,
        report: DeliveryReport,
        other_report: None = None,
        timestamp: int = NOW,
        headers: Sequence[Header] | None = None,
        /,
    ) -> None: ...


class Channel(Protocol):
    """The fastest way to append to one topic through a writer.

    `quick` is None while there is no such way; read it anew for each record. If the call raises any exception, the
    record wasn't taken, and `LogWriter.append` of the same record raises our own error for it.
    """

    @property
    def quick(self) -> QuickAppend | None: ...


@runtime_checkable
class _QuickWriter(Protocol):
    def channel(self, topic: str) -> Channel: ...


class _NoChannel:
    quick: QuickAppend | None = None


NO_CHANNEL: Final[Channel] = _NoChannel()


class ReportThread:
    """A writer and the thread that serves its delivery reports.

    Theory: a thread that serves reports beside one that publishes at full speed contends for the interpreter at each
    report. So a fast publisher serves the reports that have arrived itself, every few hundred messages, on the
    processor that has them in its cache, and the report thread stands by. If no publisher has done so for a moment, or
    a thread waits, the report thread serves them again. Ctrl-C doesn't interrupt a report (`deferred_signals`).
    """

    def __init__(self, writer: LogWriter, name: str) -> None:
        self.writer = writer
        self.append = writer.append
        self._flushes = 0
        self._stopping = False
        self._lock = threading.Lock()
        # Held while a publisher serves reports; other publishers go on publishing.
        self._serving = threading.Lock()
        # A signal: a thread that waits for reports releases it, the report thread acquires it.
        self._wanted = threading.Lock()
        self._wanted.acquire()
        self._standing_by = False
        self._last_turn = 0.0
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def channel(self, topic: str) -> Channel:
        """Returns the writer's channel into the topic, or `NO_CHANNEL` if the writer has none."""
        writer: object = self.writer
        return writer.channel(topic) if isinstance(writer, _QuickWriter) else NO_CHANNEL

    def flushing(self, more: int) -> None:
        """Notes that a flush begins (1) or ends (-1); during a flush, batches don't wait for their latency."""
        with self._lock:
            self._flushes += more

    def take_turn(self, seconds: float = 0.0, held: threading.Lock | None = None) -> bool:
        """Serves the reports that have arrived, and waits up to `seconds` for the first one.

        A publisher calls it every few hundred messages. False: the report thread serves the reports just now. `held` is
        a lock that the caller holds, and that reports may take: it is free meanwhile.
        """
        self._last_turn = time.monotonic()
        if not self._standing_by:
            return False
        turns: list[bool] = []

        def serve() -> None:
            if held is not None:
                held.release()
            try:
                turns.append(self._serve_here(seconds))
            finally:
                if held is not None:
                    held.acquire()

        # The locks too: Ctrl-C between an acquire and its release would stop the report thread for ever.
        signals_wait(serve)
        return any(turns)

    def _serve_here(self, seconds: float) -> bool:
        if not self._serving.acquire(blocking=False):
            return False
        try:
            if self._standing_by:
                self.writer.poll(seconds)
            return self._standing_by
        finally:
            self._serving.release()

    def _serve(self) -> None:
        while not self._stopping:
            try:
                if self._hurried():
                    self._stand_by()
                else:
                    self._wait_for_reports()
            except Exception:
                _log.exception("serving delivery reports failed; going on")
                time.sleep(_POLL_S)

    def _hurried(self) -> bool:
        return not self._stopping and time.monotonic() - self._last_turn < _STAND_BY_S

    def _stand_by(self) -> None:
        self._standing_by = True
        while self._hurried():
            self._wanted.acquire(timeout=_STAND_BY_S)
        with self._serving:
            self._standing_by = False

    def wanted(self) -> None:
        """Makes the report thread serve reports now, because a thread waits for them."""
        self._last_turn = 0.0
        _signal(self._wanted)

    def _wait_for_reports(self) -> None:
        # `flush` returns at once if nothing is left, while publishers may still count the last reports: then poll.
        if not self._flushes or not self.writer.flush(_POLL_S):
            self.writer.poll(_POLL_S)

    def stop(self) -> None:
        """Ends the thread and closes the writer, which reports the messages that it gives up as failed."""
        self._stopping = True
        self._thread.join()
        self.writer.close()


def _signal(lock: threading.Lock) -> None:
    # Released already: the other side stopped waiting for the signal before it came, and finds it at its next wait.
    with contextlib.suppress(RuntimeError):
        lock.release()


def publish_error(error: object, reporter: ReportThread | None, topic: str = "") -> PublishError:
    """Returns the error that a future raises for the `error` of a delivery report."""
    known = error
    if reporter is not None and not isinstance(error, PubSubError):
        known = reporter.writer.explain(error, topic)
    if isinstance(known, PublishError):
        return known
    if isinstance(known, PubSubError):
        return PublishError(known.message, code=known.code)
    return PublishError(f"publish: {known}")


class WriterPool:
    """The writers of one `PubSub`: one for each batching, batch limit and class."""

    def __init__(self, new_writer: Callable[[Batching, int, bool], LogWriter]) -> None:
        self._new_writer = new_writer
        self._reporters: dict[tuple[Batching, int, bool], ReportThread] = {}
        self._publishers: weakref.WeakSet[_Publisher] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._renewal: threading.Thread | None = None
        self._renew_now = threading.Event()
        self._closed = False
        self._process = os.getpid()
        self.callbacks = CallbackThread()
        # A weak reference: `atexit` must not keep a pool alive that is no longer used.
        self._at_exit = _AtExit(weakref.ref(self))
        atexit.register(self._at_exit)

    def reporter(self, batching: Batching, max_batch_bytes: int, durable: bool = True) -> ReportThread:
        """Returns the writer for these settings; a new one connects in the background."""
        key = batching, max_batch_bytes, durable
        with self._lock:
            self._check_open()
            reporter = self._reporters.get(key)
            if reporter is None:
                writer = self._new_writer(*key)
                reporter = ReportThread(writer, f"kafka-pubsub-publish-{len(self._reporters)}")
                self._reporters[key] = reporter
            return reporter

    def register(self, publisher: _Publisher) -> None:
        """Renews the publisher's topic settings from now on, and flushes it when the process ends."""
        with self._lock:
            self._check_open()
            self._publishers.add(publisher)
            if self._renewal is None:
                self._renewal = threading.Thread(
                    target=self._renew_for_ever, name="kafka-pubsub-publish-renewal", daemon=True
                )
                self._renewal.start()

    def renew_soon(self) -> None:
        """Renews the settings of all topics soon, in the background, because something failed."""
        self._renew_now.set()

    def _check_open(self) -> None:
        if self._process != os.getpid():
            raise FailedPrecondition("this PubSub was used before the process forked: make it in the child")
        if self._closed:
            raise FailedPrecondition("this PubSub is closed: make a new one")

    def _renew_for_ever(self) -> None:
        while not self._closed:
            self._renew_now.wait(RENEW_S)
            self._renew_now.clear()
            for publisher in self._registered():
                if not self._closed:
                    publisher.renew()
            time.sleep(_RENEW_SOON_S)

    def _registered(self) -> list[_Publisher]:
        with self._lock:
            return list(self._publishers)

    def flush_at_exit(self) -> None:
        """Flushes all topics together for up to `AT_EXIT_S`."""
        if self._closed or self._process != os.getpid():
            return
        end = time.monotonic() + AT_EXIT_S
        for publisher in self._registered():
            try:
                publisher.flush(max(0.0, end - time.monotonic()))
            except PubSubError as error:
                _log.error("the process ended without PubSub.close(): %s", error.message)

    def close(self) -> None:
        """Stops all writers. Close the topics' publishers first."""
        with self._lock:
            self._closed = True
            reporters, self._reporters = list(self._reporters.values()), {}
        atexit.unregister(self._at_exit)
        self._renew_now.set()
        for reporter in reporters:
            reporter.stop()
        self.callbacks.end()


class _AtExit:
    """The callable that `atexit` calls; it is equal only to itself, so that it can be unregistered."""

    def __init__(self, pool: weakref.ref[WriterPool]) -> None:
        self._pool = pool

    def __call__(self) -> None:
        pool = self._pool()
        if pool is not None:
            pool.flush_at_exit()
