"""Publishing to one topic: checks, order, flow control, and a future for each message.

Rules
1. The call raises argument errors; the future raises all later errors.
2. No gap: when a message of a key fails, the key is paused before the failure can be seen, and no message of it is
   queued until `resume`. The writer fails the messages that were queued behind the failed one too, and accepts none
   (`BufferError`) until it has reported all of them.
3. One lock for each topic makes "is the key paused, is there room, append" one step; it also sets the order of
   messages of a key from several threads. Delivery reports don't take it unless a thread waits.
4. One comparison finds every reason to check before a message is queued (first use, a fork, closing, a topic that
   refuses, a size near the limit): `_small` is -1 then, or the message is larger.
5. `_reporter` is None when another writer is due. That one is used once the old one has reported everything, so that no
   message overtakes another. The same holds when keys have moved to other partitions: the writer learns it after
   everything before has been reported, and until it has, messages with a key are refused.
6. While messages with a key are taken, the topic's settings are never older than two renewals of the pool: changes of
   the layout wait that long (`repartition.py`). So the first message after a pause asks for the settings.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol

from kafka_pubsub.config import Batching, PublishFlow
from kafka_pubsub.counters import PARTS, Reading
from kafka_pubsub.errors import DeadlineExceeded, InvalidArgument, PubSubError
from kafka_pubsub.model import Header
from kafka_pubsub.publish.checks import (
    MAX_KEY_BYTES,
    SIZE_SLACK,
    check_size,
    encode_attributes,
    encode_key,
    headers_size,
    refuse_closed,
    refuse_data,
    refuse_forked,
    refuse_keys,
    refuse_paused,
)
from kafka_pubsub.publish.flow_control import Callbacks, Outstanding
from kafka_pubsub.publish.future import PublishFuture
from kafka_pubsub.publish.layout import KeyLayout
from kafka_pubsub.publish.many import RUN, Messages, PublishFutures, Report, at_item
from kafka_pubsub.publish.topic_settings import PublishTarget, TargetWatch, fresh
from kafka_pubsub.publish.writer_pool import (
    ANY_PARTITION,
    NO_CHANNEL,
    NOW,
    ReportThread,
    WriterPool,
    publish_error,
)

__all__ = ["TURN_MASK", "PublishTarget", "TopicPublisher", "tell_of_forks"]


class _Forkable(Protocol):
    def forked(self) -> None: ...


# All publishers of the process.
_ALL: weakref.WeakSet[_Forkable] = weakref.WeakSet()


def tell_of_forks(publisher: _Forkable) -> None:
    """Calls `forked` in a child, as long as the publisher lives."""
    _ALL.add(publisher)


def _after_fork() -> None:
    for publisher in list(_ALL):
        publisher.forked()


os.register_at_fork(after_in_child=_after_fork)


#: A publisher serves reports after so many messages, a power of two less one: every 2 to 4 ms at full speed.
TURN_MASK: Final = 511

# Seconds between two checks whether a writer that replaces its producer accepts messages again.
_BUSY_S: Final = 0.005

# Seconds that a publisher that waits for room serves reports itself, before it leaves them to the report thread.
_SERVE_S: Final = 0.1

# Seconds that `resume` waits for earlier messages; a cluster that answers at all needs far less.
_RESUME_S: Final = 30.0

# Seconds between two lines that say how much a closing publisher still waits for.
_PROGRESS_S: Final = 5.0

_encode = str.encode
_new = object.__new__

_log = logging.getLogger("kafka_pubsub.publish")


class TopicPublisher:
    """Publishes to one topic. Making it does no I/O; the first publish calls `target`.

    `target` raises the error that forbids publishing (`NotFound`, `FailedPrecondition`). If it can't reach a broker,
    messages are accepted and wait, as they do when the broker goes away later.
    """

    #: Whether the writer waits for all in-sync replicas; and whether another publisher sends the topic's messages.
    _durable, _laned = True, False

    def __init__(
        self,
        name: str,
        target: Callable[[], PublishTarget],
        writers: WriterPool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.callbacks: Callbacks = writers.callbacks
        self._watch = TargetWatch(name, target, clock)
        self.waits = self._watch.waits
        self._writers = writers
        self._batching = Batching()
        self._flow = PublishFlow()
        self._lock = threading.Lock()
        self._outstanding = Outstanding(self, self._lock, self._flow)
        # By key: the error of its first failed message. Empty: every key may be published.
        self._paused: dict[bytes, PubSubError] = {}
        # As configured here; None: as the topic's settings say.
        self._configured_ordering: bool | None = None
        # The error of a message with a key; None: keys are accepted.
        self._no_keys: PubSubError | None = None
        self._limit = 0
        self._layout = KeyLayout(name)
        self._small = -1
        self._reporter: ReportThread | None = None
        self._channel = NO_CHANNEL
        # The last value of `_reporter` that isn't None; None until the first message.
        self._last_reporter: ReportThread | None = None
        # Whether a message failed since the topic's settings were last renewed.
        self._doubtful = False
        self._closed = False
        self._forked = False
        # Messages that failed by their report, those that were refused, and the stored ones as last told.
        self._failed = self._refusals = self._told = 0
        #: The class of its futures; `observe.tracing` has one that ends a span.
        self.future_kind: type[PublishFuture] = PublishFuture
        tell_of_forks(self)

    @property
    def answered(self) -> bool:
        """Whether the cluster has ever answered a question about the topic."""
        return self._watch.answered

    def publish(
        self,
        data: bytes,
        ordering_key: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Future[str]:
        """Queues a message; the future resolves to its id once it is on the in-sync replicas.

        The message waits for the broker without a limit: bound your own wait with `future.result(timeout)`.
        """
        # The hot path: each call taken out of line costs a message 0.1 us.
        if not isinstance(data, bytes):
            raise refuse_data(data)
        key = headers = None
        size = length = len(data)
        if ordering_key is not None:
            try:
                key = _encode(ordering_key)
            except (TypeError, UnicodeEncodeError):
                key = encode_key(ordering_key)
            if not 0 < len(key) <= MAX_KEY_BYTES:
                encode_key(ordering_key)
            size += len(key)
        if attributes is not None:
            headers = encode_attributes(attributes)
            size += headers_size(headers)
        if size > self._small and (published := self._divert(data, key, headers)) is not None:
            return published
        with self._lock:
            epoch = self._outstanding.current
            quick = self._channel.quick
            if (
                quick is None
                or self._paused
                or self._no_keys is not None
                or (sent := epoch.sent_messages) >= epoch.free_until_messages
                or (sent_bytes := epoch.sent_bytes + length) > epoch.free_until_bytes
            ):
                future = self.future_kind(epoch)
                self._publish_with_care(future, data, key, headers)
                count = future.epoch.sent_messages
            else:
                future = _new(self.future_kind)  # as its `__init__` does; the call would cost as much again
                future.epoch = epoch
                future._outcome = future._waiting = None
                try:
                    quick(self.name, data, key, ANY_PARTITION, future, None, NOW, headers)
                except BaseException as error:
                    self._refused(future, data, key, headers, error)
                    return future
                epoch.sent_messages = count = sent + 1
                epoch.sent_bytes = sent_bytes
        if not count & TURN_MASK and self._last_reporter is not None:
            self._last_reporter.take_turn()
        return future

    def publish_many(self, messages: Messages) -> PublishFutures:
        """Queues messages in their order, by the rules in `many.py`."""
        self.check_many(messages)
        futures = PublishFutures(self._outstanding.current, len(messages.data))
        return futures.fill(messages, [(self.queue_run, 0, len(futures))])

    def check_many(self, messages: Messages) -> None:
        """Raises what is wrong with a message, before the first is queued."""
        self._look_over(messages, 0, len(messages.data))

    def queue_run(self, messages: Messages, futures: PublishFutures, start: int, end: int) -> None:
        """Queues the messages of a `publish_many` from `start` up to `end`; `futures.queued` says how far it came."""
        while start < end:
            stop = min(start + RUN, end)
            if start:
                self._look_over(messages, start, stop)
            with self._lock:
                reached, epoch = start, self._outstanding.current
                if self._no_keys is None and not self._paused and self._channel.quick is not None:
                    reached = futures.queue(messages, start, stop, epoch, self._channel, self._paused)
                if reached == start:
                    self._publish_with_care(Report(epoch, futures, start), *messages.at(start))
                    reached += 1
            if self._last_reporter is not None and (reached ^ start) & ~TURN_MASK:
                self._last_reporter.take_turn()
            futures.queued = start = reached

    def _publish_with_care(
        self,
        report: PublishFuture | Report,
        data: bytes,
        key: bytes | None,
        headers: list[Header] | None,
        partition: int = ANY_PARTITION,
    ) -> None:
        """Queues a message with all checks; needs the lock, which it may release meanwhile."""
        if key is not None and self._no_keys is not None:
            raise fresh(self._no_keys)
        reporter = self._ready(len(data))
        if key is not None and self._no_keys is not None:
            raise fresh(self._no_keys)
        report.epoch = self._outstanding.current
        # Checked after everything that may release the lock.
        if key is not None and key in self._paused:
            report.fail(self._refuse_paused(key))
            return
        try:
            append = partial(reporter.append, self.name, data, key, headers, report, partition)
            self._outstanding.add(report, len(data), append)
        except Exception as error:
            self._refused(report, data, key, headers, error, partition)

    def _ready(self, size: int) -> ReportThread:
        """Returns a usable writer once there is room for the message; may release the lock meanwhile."""
        while True:
            reporter = self._reporter or self._next_reporter()
            if self._outstanding.full(size) and self._flow.on_limit != "error":
                self._serve_for_room(reporter, size)
            self._outstanding.make_room(size)
            if self._closed:
                raise refuse_closed(self.name)
            if reporter is self._reporter:
                return reporter

    def _serve_for_room(self, reporter: ReportThread, size: int) -> None:
        """Serves reports on this thread, where it is cheap, until there is room or another thread serves them."""
        until = time.monotonic() + _SERVE_S
        held = self._lock
        while self._outstanding.full(size) and time.monotonic() < until and reporter.take_turn(_BUSY_S, held):
            pass
        reporter.wanted()

    def _refused(
        self,
        report: PublishFuture | Report,
        data: bytes,
        key: bytes | None,
        headers: list[Header] | None,
        error: BaseException,
        partition: int = ANY_PARTITION,
    ) -> None:
        """Tries again while the writer that refused the message is only busy; else fails the message.

        The error of a `quick` call is dropped: the error of `append` for the same message counts.
        """
        if not isinstance(error, Exception):
            # Ctrl-C, which comes when the call has returned: its report will count.
            report.epoch.sent_messages += 1
            report.epoch.sent_bytes += len(data)
            raise error
        while not isinstance(error, PubSubError):
            self._outstanding.pause(_BUSY_S)
            reporter = self._ready(len(data))
            if key is not None and key in self._paused:
                report.fail(self._refuse_paused(key))
                return
            try:
                append = partial(reporter.append, self.name, data, key, headers, report, partition)
                self._outstanding.add(report, len(data), append)
            except (BufferError, PubSubError) as again:
                error = again
            else:
                return
        self._refusals += 1
        report.fail(self._pause(key, error))

    def _refuse_paused(self, key: bytes) -> PubSubError:
        self._refusals += 1
        return refuse_paused(key, self._paused[key])

    def _next_reporter(self) -> ReportThread:
        old = self._last_reporter
        if old is not None and not self._closed:
            self._settled_by(old, None)
        if self._closed:
            raise refuse_closed(self.name)
        if self._reporter is None:
            reporter = self._writers.reporter(self._batching, self._limit, self._durable)
            refusal = self._layout.learn(reporter)
            if refusal is not None:
                self._no_keys = refusal
                self._doubtful = True
                self._writers.renew_soon()
            self._reporter = self._last_reporter = reporter
            self._channel = reporter.channel(self.name)
        return self._reporter

    def _change_reporter(self) -> None:
        self._reporter, self._channel = None, NO_CHANNEL

    def _divert(self, data: bytes, key: bytes | None, headers: list[Header] | None) -> Future[str] | None:
        """Does what `_look` does; returns the message's future if another publisher took it."""
        self._look(data, key, headers)
        return None

    def _look(self, data: bytes, key: bytes | None, headers: list[Header] | None) -> None:
        """Does the checks that aren't needed for each message."""
        self._look_up()
        check_size(self.name, data, key, headers, self._limit)

    def _look_up(self) -> None:
        self._check_usable()
        self._writers.register(self)
        self._apply(self._watch.get())
        if not self._watch.certain:
            self._writers.renew_soon()

    def _look_over(self, messages: Messages, start: int, end: int) -> None:
        """Does the same for the messages of one `publish_many`, if one of them needs it."""
        for index in range(start, end):
            if messages.largest <= self._small:
                break
            try:
                self._look(*messages.at(index))
            except InvalidArgument as error:
                raise at_item(index, error) from None
        if self._no_keys is not None and any(key is not None for key in messages.keys[start:end]):
            raise fresh(self._no_keys)

    def _check_usable(self) -> None:
        if self._forked:
            raise refuse_forked(self.name)
        if self._closed:
            raise refuse_closed(self.name)

    def _apply(self, target: PublishTarget) -> None:
        with self._lock:
            configured = self._configured_ordering
            ordering = target.ordering if configured is None else configured
            fenced = self._no_keys is not None
            self._no_keys = target.no_keys if ordering is not False else refuse_keys()
            if target.max_message_bytes != self._limit:
                # A batch must not be larger than the topic takes.
                self._limit = target.max_message_bytes
                self._change_reporter()
            used, waiting = self._last_reporter is not None, self._outstanding.messages
            if self._layout.apply(target, used=used, waiting=waiting, fenced=fenced):
                self._change_reporter()
            self._small = -1 if self._closed or self._laned else max(self._limit - SIZE_SLACK, -1)
            # Afterwards, because `look_again` takes no lock.
            if self._watch.doubted:
                self._small = -1

    def renew(self) -> None:
        """Renews the topic's settings, in the pool's background thread, if there is a reason to."""
        if self._closed:
            return
        if not (self._doubtful or not self._watch.certain or self._published_lately()):
            self._watch.doubt()
            self._small = -1
            return
        self._doubtful = False
        try:
            self._apply(self._watch.renew())
        except PubSubError as error:
            if self._small >= 0:
                _log.warning("topic %r refuses publishing now: %s", self.name, error.message)
            self._small = -1
        except Exception:
            _log.exception("looking at topic %r failed; going on", self.name)
        if not self._watch.certain:
            self._writers.renew_soon()

    def _published_lately(self) -> bool:
        with self._lock:
            return self._outstanding.advanced()

    def failed(self, key: bytes | None, error: object) -> PubSubError:
        """Pauses the key of a message whose report says that it failed; returns the error that its future raises."""
        self._failed += 1
        return self._pause(key, error)

    def _pause(self, key: bytes | None, error: object) -> PubSubError:
        known = publish_error(error, self._last_reporter, self.name)
        if key is not None:
            self._paused.setdefault(key, known)
        self._doubtful = True
        self._writers.renew_soon()
        return known

    @property
    def failures(self) -> int:
        """How many messages failed."""
        return self._failed + self._refusals

    @property
    def stored(self) -> int:
        """How many messages were stored."""
        self._told = max(self._told, self._outstanding.reported - self._failed)
        return self._told

    def readings(self) -> Iterator[Reading]:
        """Returns what it has counted, for `kafka_pubsub.observe`."""
        yield Reading(
            {"topic": self.name},
            {"published": self.stored, "publish_failed": self.failures},
            {"publishing": self._outstanding.messages},
            {"publish": self._outstanding.durations.times()},
        )

    def would_block(self, size: int) -> bool:
        """Returns whether `publish` would have to wait now: to look the topic up, for another writer, or for room."""
        if self._small < 0 or (self._reporter is None and self._last_reporter is not None):
            return True
        with self._lock:
            return self._outstanding.full(size)

    def look_again(self) -> None:
        """Makes the next message look the topic up first, because the topic was changed."""
        self._watch.doubt()
        self._small = -1

    def resume(self, ordering_key: str) -> None:
        """Allows publishing of a key again after a failure; does nothing if the key isn't paused.

        First it waits until the messages queued behind the failed one have been reported, so that none of them
        pauses the key anew.
        """
        key = encode_key(ordering_key)
        self._check_usable()
        if key in self._paused:
            self._settle(_RESUME_S, "resume")
            self._paused.pop(key, None)

    def configure(
        self,
        *,
        batching: Batching | None = None,
        flow: PublishFlow | None = None,
        message_ordering: bool | None = None,
    ) -> None:
        """Changes how this process publishes to the topic.

        After a change of `batching`, the next message waits until all earlier ones have been reported.
        """
        self._check_usable()
        with self._lock:
            if flow is not None:
                self._flow = flow
                self._outstanding.limit(flow)
            if message_ordering is not None:
                self._configured_ordering = message_ordering
                self._small = -1
            if batching is not None and batching != self._batching:
                self._batching = batching
                self._change_reporter()

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all earlier messages are stored or have failed; `DeadlineExceeded` after `timeout` seconds."""
        if self._forked:
            self._check_usable()
        self._settle(timeout, "flush")

    def _settle(self, timeout: float | None, what: str, then: str = "they are sent when it answers") -> None:
        reporter = self._last_reporter
        if reporter is None:
            return
        with self._lock:
            if not self._settled_by(reporter, timeout):
                count, seconds = self._outstanding.messages, round(timeout or 0, 1)
                messages, wait = ("message", "waits") if count == 1 else ("messages", "wait")
                raise DeadlineExceeded(
                    f"{what}: {count} {messages} of topic {self.name!r} still {wait} for the broker "
                    f"after {seconds:g} s{self._watch.because}; {then}"
                )

    def _settled_by(self, reporter: ReportThread, timeout: float | None) -> bool:
        reporter.flushing(1)
        reporter.wanted()
        try:
            return self._outstanding.wait_over(timeout)
        finally:
            reporter.flushing(-1)

    def close(self, timeout: float = 30) -> None:
        """Takes no more messages and waits up to `timeout` seconds for those that aren't stored yet.

        Messages that are left then are still sent while the pool is open, and fail when it closes.
        """
        with self._lock:
            if self._closed or self._forked:
                return
            self._closed = True
            self._small = -1
            # Wakes the threads that wait for room, which find the publisher closed.
            self._outstanding.limit(PublishFlow(on_limit="ignore"))
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            try:
                self._settle(min(left, _PROGRESS_S), "close", "what isn't stored in time fails")
                break
            except DeadlineExceeded as error:
                _log.warning("%s", error.message)
        PARTS.end(self)

    def forked(self) -> None:
        """Refuses, in a forked child, a topic used before the fork; renews locks that no thread here would release."""
        self._lock = threading.Lock()
        self._outstanding = Outstanding(self, self._lock, self._flow)
        self._watch.renew_locks()
        if self._last_reporter is not None:
            self._forked = True
            self._change_reporter()
            self._small = -1
