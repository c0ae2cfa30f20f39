"""The callback that a stream calls for a handler: it makes the arguments, calls the handler, and settles the message.

Rules
1. What a handler needs is resolved when the app starts; for each message there are its parse, the call and the ack.
2. A return acks, unless the handler has settled the message itself. With `to` the returned value is on the in-sync
   replicas before the message is acked.
3. A body that doesn't fit is a dead letter at once; it is logged the first time, and counted.
4. `Retry`, `Drop`, `DeadLetter` and the classes in `dead_letter_on` settle the message. Any other exception goes on to
   the stream: it nacks, and logs it.
5. In a batch, a message behind a rejected one of its run isn't given to the handler: it is delivered again anyway. So
   are one whose schema can't be asked for now, and those behind it; the others are handled.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from kafka_pubsub.errors import FailedPrecondition, RegistryUnavailable
from kafka_pubsub.handlers.handler import Handler, is_async
from kafka_pubsub.handlers.outcomes import DeadLetter, Drop, Retry
from kafka_pubsub.handlers.parameters import BAD_BODIES, explain_body, place_of, resolve
from kafka_pubsub.handlers.results import Results
from kafka_pubsub.log.joining import run_on_loop
from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.workers.failure_log import log_raised
from kafka_pubsub.subscribe.workers.lease_runner import ACKED, AWAY

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub

__all__ = ["Calls", "Middleware"]

log = logging.getLogger("kafka_pubsub.app")

#: A function around each call of a handler: `def timed(call, message): return call()`.
Middleware = Callable[..., object]
#: A message, or those of a batch, and the values for the handler.
_Run = Callable[[Message | list[Message], Sequence[object]], object]


class Calls:
    """The callbacks of one handler.

    `middleware`: from the outermost to the innermost. `results`: where returned values go. `note` is called with each
    message with which the handler is called; a test gives one.
    """

    def __init__(
        self,
        handler: Handler,
        middleware: Sequence[Middleware] = (),
        results: Results | None = None,
        note: Callable[[Message], None] | None = None,
    ) -> None:
        self.handler = handler
        self.is_async = is_async(handler.function)
        #: How many bodies didn't fit.
        self.rejected = 0
        self._results = results
        self._note = note
        self._parameters = resolve(
            handler.function, handler.where, batch=handler.batch is not None, names=handler.names
        )
        self._prepare = self._parameters.prepare()
        invoke = self._parameters.invoke
        self._run: _Run = lambda subject, values: invoke(*values)
        for each in reversed(middleware):
            self._run = self._within(each, self._run)

    def begin(self, ps: PubSub, declared: Collection[str]) -> None:
        """Looks how returned values are published; `declared`: the topics for which the app has declared a schema."""
        name = self.handler.to
        if self._results is None or name is None:
            return
        looks = self.handler.ensure != "never"
        self._results.by_schema = name in declared or (
            looks and ps.topic(name).options.record_schema is not None
        )

    # -- the callbacks ---------------------------------------------------------------------------------------

    def callback(self) -> Callable[[Message], object]:
        """Returns the callback of a handler of single messages that isn't a coroutine function."""
        prepare, run, results, note = self._prepare, self._run, self._results, self._note

        def call(message: Message) -> None:
            try:
                values = prepare(message)
            except BAD_BODIES as error:
                self._reject(message, error)
                return
            if note is not None:
                note(message)
            try:
                result = run(message, values)
                if result is not None:
                    self._check_result(result)
                    if results is not None:
                        results.publish(message, result)
            except Exception as error:
                if not self._settled([message], error):
                    raise
                return
            if not message._state:
                message.ack()

        return call

    def coroutine(self) -> Callable[[Message], Awaitable[object]]:
        """Returns the callback of a coroutine function."""
        prepare, run, results, note = self._prepare, self._run, self._results, self._note

        async def call(message: Message) -> None:
            try:
                # A registry is waited for beside the loop.
                asks = message._sink.records().asks(message)
                values = await asyncio.to_thread(prepare, message) if asks else prepare(message)
            except BAD_BODIES as error:
                self._reject(message, error)
                return
            if note is not None:
                note(message)
            try:
                result = await cast("Awaitable[object]", run(message, values))
                if results is not None:
                    await results.publish_async(message, result)
            except Exception as error:
                if not self._settled([message], error):
                    raise
                return
            if not message._state:
                message.ack()

        return call

    def batch(self, loop: asyncio.AbstractEventLoop | None) -> Callable[[list[Message]], object]:
        """Returns the callback of a handler of batches; `loop` runs a coroutine function."""

        def call(messages: list[Message]) -> None:
            usable, values = self._usable(messages)
            if not usable:
                return
            try:
                self._run_batch(usable, values, loop)
            except Exception as error:
                if not self._settled(usable, error):
                    delay = AWAY if isinstance(error, RegistryUnavailable) else None
                    _each_open(usable, lambda message: message.nack(delay))
                    raise
            else:
                _each_open(usable, lambda message: message.ack())

        return call

    def _run_batch(
        self,
        messages: list[Message],
        values: Sequence[Sequence[object]],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        if self._note is not None:
            for message in messages:
                self._note(message)
        result = self._run(messages, values)
        if result is not None and not self.is_async:
            self._check_result(result)
        if inspect.isawaitable(result):
            assert loop is not None
            result = run_on_loop(partial(_wait_for, result), loop)
        if self._results is not None:
            self._results.publish_batch(messages, result)

    def _usable(self, messages: list[Message]) -> tuple[list[Message], list[list[object]]]:
        """Returns the messages that the handler gets, and its arguments (rule 5)."""
        usable, rows = list[Message](), list[Sequence[object]]()
        broken: set[int] = set()
        for message in messages:
            run = id(message._sink)
            if run in broken:
                continue
            try:
                rows.append(self._prepare(message))
                usable.append(message)
            except BAD_BODIES as error:
                broken.add(run)
                self._reject(message, error)
            except RegistryUnavailable as error:
                broken.add(run)
                log_raised([message], error)
                message.nack(AWAY)
        if not rows:
            return usable, []
        return usable, [list(column) for column in zip(*rows, strict=True)]

    def _check_result(self, result: object) -> None:
        """Refuses work that wasn't done: a coroutine of a plain function, such as a wrapper around `async def`."""
        if not inspect.isawaitable(result) and not inspect.isgenerator(result):
            return
        if inspect.iscoroutine(result) or inspect.isgenerator(result):
            result.close()
        raise FailedPrecondition(
            f"{self.handler.where} returned a {type(result).__name__}, which would never run, so the message is "
            "delivered again: declare it (and each decorator around it) with `async def`, or return a value"
        )

    # -- outcomes --------------------------------------------------------------------------------------------

    def _reject(self, message: Message, error: Exception) -> None:
        reason = explain_body(error, self._parameters.body)
        self.rejected += 1
        if self.rejected == 1:
            log.warning(
                "%s: message %s isn't given to the handler, because %s. It is a dead letter, or parked where the "
                "subscription makes none. This is said once; app.rejected counts such messages",
                self.handler.where,
                message.message_id,
                reason,
            )
        message.dead_letter(reason)

    def _settled(self, messages: Sequence[Message], error: Exception) -> bool:
        """Settles the messages as the exception says; returns False for one that is a nack."""
        if isinstance(error, Retry):
            _each_open(messages, lambda message: message.nack(error.delay))
        elif isinstance(error, Drop):
            shown = ", ".join(message.message_id for message in messages[:5])
            log.info("subscriber %r drops %s: %s", self.handler.name, shown, error)
            _each_open(messages, lambda message: message.ack())
        elif isinstance(error, (DeadLetter, *self.handler.dead_letter_on)):
            _each_open(messages, lambda message: message.dead_letter(str(error)))
        else:
            self._check_own_acks(messages, error)
            return all(message._state == ACKED for message in messages)
        return True

    def _check_own_acks(self, messages: Sequence[Message], error: Exception) -> None:
        acked = [message for message in messages if message._state == ACKED]
        if acked:
            log.error(
                "%s: it acked message %s by itself and then raised, so that message isn't delivered again. Leave the "
                "ack out: a message is acked when its handler returns",
                self.handler.where,
                acked[0].message_id,
                exc_info=error,
            )

    # -- middleware ------------------------------------------------------------------------------------------

    def _within(self, middleware: Middleware, run: _Run) -> _Run:
        """Returns `run` with a middleware around it."""
        where = f"middleware {place_of(middleware)}"
        if is_async(middleware) and not self.is_async:
            raise FailedPrecondition(
                f"{where} is a coroutine function, and {self.handler.where} isn't: write the middleware as `def`, "
                "and let it return call()"
            )

        def check(*, called: bool) -> None:
            if not called:
                raise FailedPrecondition(
                    f"{where} returned without calling call(), so {self.handler.where} didn't run, and the message is "
                    "delivered again: return call(), or raise Drop if the message isn't wanted"
                )

        def within(subject: Message | list[Message], values: Sequence[object]) -> object:
            called = False

            def call() -> object:
                nonlocal called
                called = True
                return run(subject, values)

            async def awaited(result: Awaitable[object]) -> object:
                value = await result
                check(called=called)
                return value

            result = middleware(call, subject)
            if inspect.isawaitable(result):
                return awaited(result)
            check(called=called)
            return result

        return within


def _each_open(messages: Sequence[Message], settle: Callable[[Message], object]) -> None:
    for message in messages:
        if not message._state:
            settle(message)


async def _wait_for(result: Awaitable[object]) -> object:
    return await result
