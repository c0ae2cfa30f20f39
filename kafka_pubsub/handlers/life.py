"""An app that runs: its resources, its streams, and how they end.

Rules
1. Everything is checked and made before the first stream opens; what was opened is closed in reverse if a later step
   fails.
2. A stop ends the streams first: they take nothing more, let handlers end, and commit. Then the resources close.
3. A stream that fails is the app's failure: `failed` is set, and `check` raises its error.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import timedelta
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING

from kafka_pubsub.handlers.calls import Calls, Middleware
from kafka_pubsub.handlers.ensure import again, ensure
from kafka_pubsub.handlers.handler import Handler
from kafka_pubsub.handlers.lifespan import LoopThread, Manager, on_loop
from kafka_pubsub.handlers.loop_watch import LoopWatch
from kafka_pubsub.handlers.results import Results
from kafka_pubsub.handlers.topics import AppTopic
from kafka_pubsub.log.joining import closing
from kafka_pubsub.model import Message
from kafka_pubsub.options import Seconds

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.subscribe.stream.stream import Stream

__all__ = ["Life", "Plan"]

#: Seconds of an ack deadline by default.
ACK_DEADLINE = 10.0

log = logging.getLogger("kafka_pubsub.app")


class Plan:
    """What is to run: made by the app, resolved before anything is opened.

    `note`: gets each call's subscription and message, and what is missing is made, whatever the handlers say: a test.
    """

    def __init__(
        self,
        ps: PubSub,
        handlers: Sequence[Handler],
        middleware: Sequence[Middleware],
        *,
        topics: Sequence[AppTopic[object]] = (),
        note: Callable[[str, Message], None] | None = None,
    ) -> None:
        self.ps = ps
        self.is_test = note is not None
        self.topics = topics
        self.calls = [
            Calls(
                handler,
                middleware,
                None if handler.to is None else Results(ps.topic(handler.to), handler.where),
                None if note is None else _noting(note, handler.name),
            )
            for handler in handlers
        ]

    @property
    def needs_loop(self) -> bool:
        """Whether a handler is a coroutine function."""
        return any(each.is_async for each in self.calls)


def seconds_of(ack_deadline: Seconds | None) -> float:
    """Returns an ack deadline in seconds; None is the default."""
    if ack_deadline is None:
        return ACK_DEADLINE
    return ack_deadline.total_seconds() if isinstance(ack_deadline, timedelta) else ack_deadline


def code_of(function: Callable[..., object]) -> CodeType | None:
    """Returns the code of a function, or of the function that it wraps; None: it has none."""
    found = getattr(inspect.unwrap(function), "__code__", None)
    return found if isinstance(found, CodeType) else None


def _noting(note: Callable[[str, Message], None], name: str) -> Callable[[Message], None]:
    return lambda message: note(name, message)


class Life:
    """The streams and resources of an app that was started."""

    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.plan = plan
        self.streams: dict[str, Stream] = {}
        self.failed = threading.Event()
        self._loop = loop
        self._stack = ExitStack()
        self._stopping = False
        # None: no handler is a coroutine function.
        self._watch: LoopWatch | None = None

    def enter(self, managers: Sequence[Manager]) -> None:
        """Enters the resources, on a loop of our own where that is needed, and opens the streams."""
        with ExitStack() as opened:
            asynchronous = [each for each in managers if isinstance(each, AbstractAsyncContextManager)]
            if self._loop is None and (asynchronous or self.plan.needs_loop):
                thread = LoopThread()
                opened.callback(thread.close)
                self._loop = thread.loop
            for each in managers:
                if isinstance(each, AbstractAsyncContextManager):
                    assert self._loop is not None
                    opened.enter_context(on_loop(each, self._loop))
                else:
                    opened.enter_context(each)
            opened.callback(self._close_streams)
            self.open_streams()
            self._stack = opened.pop_all()

    def open_streams(self) -> None:
        """Makes or checks what handlers need, then opens their streams."""
        for each in self.plan.calls:
            ensure(self.plan.ps, each.handler, create=self.plan.is_test)
        for topic in self.plan.topics:
            again(topic.declare)
        declared = {topic.name for topic in self.plan.topics if topic.has_schema}
        for each in self.plan.calls:
            each.begin(self.plan.ps, declared)
        for each in self.plan.calls:
            stream = self._open(each)
            self.streams[each.handler.name] = stream
            stream.add_done_callback(partial(self._ended, each.handler.name))
        self._watch_loop()

    def _watch_loop(self) -> None:
        """Watches the loop of the coroutine functions, by the shortest ack deadline among them."""
        waiting = [each.handler for each in self.plan.calls if each.is_async]
        if waiting and self._loop is not None:
            limit = min(seconds_of(each.settings.get("ack_deadline")) for each in waiting)
            names = {code: each.where for each in waiting if (code := code_of(each.function)) is not None}
            self._watch = LoopWatch(self._loop, names, limit)

    def _open(self, calls: Calls) -> Stream:
        handler = calls.handler
        sub = self.plan.ps.subscription(handler.name)
        if handler.batch is not None:
            return sub.pull_batch(
                calls.batch(self._loop),
                max_messages=handler.batch,
                flow=handler.flow,
                max_workers=handler.max_workers,
            )
        if calls.is_async:
            assert self._loop is not None
            return sub._pull_async(
                calls.coroutine(), self._loop, flow=handler.flow, max_workers=handler.max_workers
            )
        return sub.pull(calls.callback(), flow=handler.flow, max_workers=handler.max_workers)

    def _ended(self, name: str, stream: Stream) -> None:
        if not self._stopping:
            if (error := stream.exception(0)) is not None:
                log.error("subscription %r receives no more: %s", name, error)
            self.failed.set()

    def check(self) -> None:
        """Raises the error of a stream that has failed."""
        for stream in self.streams.values():
            if stream.done():
                stream.result(0)

    def drain(self) -> None:
        """Takes nothing more, and returns at once; `stop` waits."""
        self._stopping = True
        for stream in self.streams.values():
            stream._drain()

    def close_streams(self, grace: float | None) -> None:
        """Lets handlers end, for `grace` seconds at most, and commits."""
        self._stopping = True
        threads = [
            threading.Thread(target=stream.close, args=(grace,), name="kafka_pubsub-app-close", daemon=True)
            for stream in self.streams.values()
        ]
        for thread in threads:
            thread.start()
        with closing(threading.current_thread()):
            for thread in threads:
                thread.join()
        if self._watch is not None:
            self._watch.close()
        for each in self.plan.calls:
            if each.rejected > 1:
                log.warning(
                    "subscriber %r: %d bodies didn't fit its handler, and are dead letters",
                    each.handler.name,
                    each.rejected,
                )

    def _close_streams(self) -> None:
        if not self._stopping:
            self.close_streams(30.0)

    def stop(self, grace: float | None) -> bool:
        """Closes the streams, then the resources; returns whether all handlers have ended."""
        with contextlib.closing(self._stack):
            self.close_streams(grace)
        return not any(stream._left for stream in self.streams.values())
