"""The futures of acks whose callers wait until they are durable.

Theory. `core.commit.durable_acks` decides which ack is durable; this module sets the results. A future belongs to one
stream, and the end of the stream ends all its futures.

Rules
1. Every future gets one result: from the core, or from the end of the stream. So no caller waits for ever.
2. A failure says what it means: with `StaleAck` the ack has no effect; with another `AckError` that isn't known.
3. Done-callbacks never run on the runner: one that is slow, or waits for another ack, would hold up all.
4. A callback that runs inline and waits for its ack holds up the fetcher, which commits: another thread must become
   the fetcher first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import cast

from kafka_pubsub.errors import AckError, StaleAck, UnknownAck
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import AckFuture, Message
from kafka_pubsub.publish.future import CallbackThread
from kafka_pubsub.subscribe.partition.durable_acks import PATIENCE
from kafka_pubsub.subscribe.partition.effects import Unstored
from kafka_pubsub.subscribe.partition.events import Ask
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.workers.observer import StreamObserver

__all__ = ["DurableAcks", "check_answers", "refused"]

log = logging.getLogger("kafka_pubsub.subscriber")

_WHY = {
    Unstored.LATE: (
        StaleAck,
        "came too late and changed nothing: its lease was over - expired, acked or nacked before, or its partition "
        "given up. Only the newest delivery can be acked; a message that isn't finished is delivered again",
    ),
    Unstored.GONE: (
        StaleAck,
        "counts for nothing: its partition was given up (a rebalance, or a stream that was closed or has failed) "
        "before the ack was stored. The message is delivered again",
    ),
    Unstored.UNKNOWN: (
        AckError,
        "has an unknown outcome: its partition was given up while the commit that holds it had no answer. The message "
        "may be delivered again, or not",
    ),
    Unstored.UNANSWERED: (
        AckError,
        f"isn't confirmed: the broker hasn't accepted a commit for {PATIENCE:g} s. It is kept and tried on; "
        "if this process dies before, the message is delivered again",
    ),
}
_ENDED = (
    AckError,
    "has an unknown outcome: its stream has ended without an answer. The message may be delivered again, or not",
)


class DurableAcks:
    """The ack futures of one stream."""

    def __init__(self) -> None:
        #: Asks for the runner, in order.
        self.asked: deque[Ask] = deque()
        #: Futures without a result.
        self._open: set[_Future] = set()
        self._callbacks = CallbackThread("kafka_pubsub-ack-callbacks")
        self._ended = False

    def ask(
        self,
        lease: Lease,
        message: Message,
        observer: StreamObserver,
        make_way: Callable[[], None],
    ) -> AckFuture:
        """Returns the future of an ack; the thread that is about to wait for it calls `make_way`."""
        future = _Future(self, lease, message, observer, make_way)
        self._open.add(future)
        self.asked.append(Ask(lease, cast("Record", message._record), future))
        if self._ended:  # no sweep takes it any more
            self.end()
        return future

    @property
    def waiting(self) -> int:
        """The number of futures without a result."""
        return len(self._open)

    def end(self) -> None:
        """Fails the futures of callers that still wait, because the stream has ended."""
        self._ended = True
        self.asked.clear()
        for future in list(self._open):
            future.fail(*_ENDED)
        self._callbacks.close(0)

    def answered(self, future: _Future) -> None:
        """Drops a future that has a result."""
        self._open.discard(future)

    def call_back(self, callback: Callable[[Future[None]], object], future: Future[None]) -> None:
        """Runs a done-callback (rule 3)."""

        def run() -> None:
            try:
                callback(future)
            except (Exception, SystemExit):  # the thread goes on with other callbacks
                log.exception("a done-callback of an ack's future raised")

        if self._ended:  # the thread that closes the stream does it
            run()
        else:
            self._callbacks.run(run)


class _Answer(AckFuture):
    """An ack future that a coroutine can await."""

    def __await__(self) -> Generator[object, None, None]:
        return asyncio.wrap_future(self).__await__()


class _Future(_Answer):
    """The future of the ack of one message."""

    def __init__(
        self,
        acks: DurableAcks,
        lease: Lease,
        message: Message,
        observer: StreamObserver,
        make_way: Callable[[], None],
    ) -> None:
        super().__init__()
        self._acks = acks
        self._lease = lease
        self._message = message
        self._observer = observer
        self._make_way = make_way
        self.set_running_or_notify_cancel()

    def durable(self) -> None:
        """Sets the result: a commit has stored the ack."""
        self._acks.answered(self)
        lease, message = self._lease, self._message
        self._observer.durable(lease.partition, message.offset, lease.epoch, message.delivery_attempt)
        with suppress(InvalidStateError):  # the end of the stream came first
            self.set_result(None)

    def undone(self, why: Unstored) -> None:
        """Fails the future: the ack isn't known to be durable."""
        self.fail(*_WHY[why])

    def fail(self, kind: type[AckError], text: str) -> None:
        """Fails the future with a reason."""
        self._acks.answered(self)
        with suppress(InvalidStateError):
            self.set_exception(_error(kind, self._message, text))

    def result(self, timeout: float | None = None) -> None:
        """Waits until the ack is durable; raises the reason if it isn't, or `TimeoutError`."""
        if not self.done():
            self._make_way()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Returns why the ack isn't durable, or None; waits like `result`."""
        if not self.done():
            self._make_way()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        """Calls `fn` with the future once it is done, on a thread of its own; at once if it is done already."""
        super().add_done_callback(fn if self.done() else partial(self._acks.call_back, fn))


def check_answers(answers: Mapping[str, AckFuture], unknown: AckError | None) -> None:
    """Waits for the acks of one call; raises one error that names all that had no effect. `unknown`: found before."""
    failed = {text: error for text, answer in answers.items() if (error := answer.exception()) is not None}
    if unknown is not None:
        failed.update(dict.fromkeys(unknown.ack_ids, unknown))
    if not failed:
        return
    errors = list(failed.values())
    # Of several kinds the one that promises least.
    worst = next((error for error in errors if not isinstance(error, StaleAck | UnknownAck)), errors[0])
    if not isinstance(worst, AckError):
        raise worst
    count = len(answers) + (0 if unknown is None else len(unknown.ack_ids))
    error = type(worst)(f"{len(failed)} of {count} acks aren't stored (see ack_ids); {worst.message}")
    error.ack_ids = tuple(failed)
    raise error


def refused(message: Message) -> AckFuture:
    """Returns the future of an ack that is known to be late."""
    future = _Answer()
    future.set_exception(_error(StaleAck, message, _WHY[Unstored.LATE][1]))
    return future


def _error(kind: type[AckError], message: Message, text: str) -> AckError:
    return kind(f"the ack of message {message.message_id} (attempt {message.delivery_attempt}) {text}")
