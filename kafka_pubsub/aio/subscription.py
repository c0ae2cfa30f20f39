"""A handle on a subscription, for coroutines.

Rules
1. Callbacks are coroutine functions, run as tasks of the loop that called `pull`.
2. A cancelled `receive` takes no further message. Messages that it got at the same moment are nacked, so that they
   are delivered again.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from itertools import islice
from types import TracebackType
from typing import Final, Self, Unpack

from kafka_pubsub.aio.stream import Opening
from kafka_pubsub.aio.threads import close_on_thread
from kafka_pubsub.config import FlowControl, SubscriptionOptions
from kafka_pubsub.dead_letters.model import DeadLetterMessage, DeadLetterProgress, DeadLetterResult
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.joining import run_on_loop
from kafka_pubsub.looks.message import PeekedMessage
from kafka_pubsub.model import Message
from kafka_pubsub.options import LetterSelection
from kafka_pubsub.subscribe.retry_topic.key_states import KeyState
from kafka_pubsub.subscribe.stream.status import SubscriptionState
from kafka_pubsub.subscription import Subscription as SyncSubscription

__all__ = ["Subscription"]

#: Seconds that a thread waits for messages in one call: a loop that ends may have to wait as long for the thread.
SLICE: Final = 1.0

#: Dead letters, or messages, that one call in a thread reads.
AT_ONCE: Final = 200


class Subscription:
    """A handle on a subscription; `PubSub.subscription` and `PubSub.create_subscription` return one.

    Example:
        async def handle(message):
            await work(message.data)
            message.ack()

        async with ps.subscription("billing").pull(handle) as stream:
            await stream.result(timeout=60)

        async with ps.subscription("billing") as sub:  # its end gives up what `receive` holds
            for message in await sub.receive(100, timeout=30):
                await handle(message)
    """

    __slots__ = ("_sync",)

    def __init__(self, sync: SyncSubscription) -> None:
        self._sync = sync

    @property
    def name(self) -> str:
        """The subscription's name, which is also the consumer group's."""
        return self._sync.name

    async def topic(self) -> str:
        """Returns the name of the subscription's topic."""
        return await asyncio.to_thread(lambda: self._sync.topic)

    async def options(self) -> SubscriptionOptions:
        """Reads the stored configuration from the catalog, and returns it."""
        return await asyncio.to_thread(lambda: self._sync.options)

    def pull(
        self,
        callback: Callable[[Message], Awaitable[object]],
        *,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
    ) -> Opening:
        """Returns a stream to be opened, which calls `callback` with each message, one of a key at a time.

        `async with sub.pull(...) as stream`, or `stream = await sub.pull(...)`. At most `max_workers` tasks run.
        """
        _check_coroutine_function(callback)
        loop = asyncio.get_running_loop()
        return Opening(lambda: self._sync._pull_async(callback, loop, flow=flow, max_workers=max_workers))

    def pull_batch(
        self,
        callback: Callable[[list[Message]], Coroutine[object, object, object]],
        *,
        max_messages: int = 100,
        max_latency: float | timedelta = 0.05,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
    ) -> Opening:
        """Returns a stream to be opened, which calls `callback` with lists of messages.

        A list holds messages of distinct keys, or consecutive messages of one key in their order.
        """
        _check_coroutine_function(callback)
        loop = asyncio.get_running_loop()

        def run(messages: list[Message]) -> object:
            return run_on_loop(lambda: callback(messages), loop)

        return Opening(
            lambda: self._sync.pull_batch(
                run, max_messages=max_messages, max_latency=max_latency, flow=flow, max_workers=max_workers
            )
        )

    async def receive(self, max_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Returns up to `max_messages` messages, and waits up to `timeout` seconds for the first (None: no limit).

        The list is empty if no message came. See `kafka_pubsub.Subscription.receive` for how long the process stays a
        member of the group.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE if until is None else min(SLICE, max(0.0, until - time.monotonic()))
            # `Subscription.receive` refuses a wrong timeout.
            wait = timeout if timeout is not None and not timeout >= 0 else left
            messages = await self._receive(max_messages, wait)
            if messages or (until is not None and time.monotonic() >= until):
                return messages

    async def _receive(self, max_messages: int, timeout: float | None) -> list[Message]:
        loop, cancelled = asyncio.get_running_loop(), threading.Event()
        got = loop.run_in_executor(
            None,
            lambda: self._sync._subscriber().receiver.receive(max_messages, timeout, cancelled.is_set),
        )
        try:
            return await asyncio.shield(got)
        except asyncio.CancelledError:
            cancelled.set()
            got.add_done_callback(_give_back)
            raise

    async def close(self) -> None:
        """Gives up at once what `receive` holds for this process; see `kafka_pubsub.Subscription.close`."""
        await close_on_thread(self._sync.close)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._sync.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close_on_thread(lambda: self._sync.__exit__(kind, error, trace))

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        """Acks messages by `message.ack_id`; with `exactly_once` it waits until all acks are durable."""
        if self._sync._acks_wait:
            await asyncio.to_thread(self._sync.acknowledge, ack_ids)
        else:
            self._sync.acknowledge(ack_ids)

    async def modify_ack_deadline(self, ack_ids: Sequence[str], seconds: float) -> None:
        """Moves the deadlines to `seconds` from now; 0 is a nack."""
        self._sync.modify_ack_deadline(ack_ids, seconds)

    async def peek(self, max_messages: int | None = None) -> AsyncIterator[PeekedMessage]:
        """Yields the messages that aren't finished, without a group; see `kafka_pubsub.Subscription.peek`."""
        found = await asyncio.to_thread(self._sync.peek, max_messages)
        while some := await asyncio.to_thread(lambda: list(islice(found, AT_ONCE))):
            for message in some:
                yield message

    async def state(self, *, limit: int = 10_000) -> SubscriptionState:
        """Returns what isn't finished, what is in flight, and the blocked keys with the reason for each.

        `limit` (default 10,000): how much of the retry and dead-letter topics is read; see
        `kafka_pubsub.Subscription.state`.
        """
        return await asyncio.to_thread(self._sync.state, limit=limit)

    async def dead_letters(
        self,
        *,
        topic: str | None = None,
        **selection: Unpack[LetterSelection],
    ) -> AsyncIterator[DeadLetterMessage]:
        """Yields the dead letters that weren't replayed or purged; see `kafka_pubsub.Subscription.dead_letters`."""
        dead_letters = self._sync.dead_letters(topic=topic, **selection)
        while some := await asyncio.to_thread(lambda: list(islice(dead_letters, AT_ONCE))):
            for dead_letter in some:
                yield dead_letter

    async def replay_dead_letters(
        self,
        *,
        topic: str | None = None,
        dry_run: bool = False,
        on_progress: Callable[[DeadLetterProgress], object] | None = None,
        **selection: Unpack[LetterSelection],
    ) -> DeadLetterResult:
        """Delivers dead letters again; `on_progress` is called on the loop. A cancelled call stops soon.

        See `kafka_pubsub.Subscription.replay_dead_letters`.
        """
        return await _long(
            lambda tell: self._sync.replay_dead_letters(
                topic=topic,
                dry_run=dry_run,
                on_progress=tell,
                **selection,
            ),
            on_progress,
        )

    async def purge_dead_letters(
        self,
        *,
        topic: str | None = None,
        dry_run: bool = False,
        on_progress: Callable[[DeadLetterProgress], object] | None = None,
        **selection: Unpack[LetterSelection],
    ) -> DeadLetterResult:
        """Marks dead letters as given up; see `kafka_pubsub.Subscription.purge_dead_letters`."""
        return await _long(
            lambda tell: self._sync.purge_dead_letters(
                topic=topic,
                dry_run=dry_run,
                on_progress=tell,
                **selection,
            ),
            on_progress,
        )

    async def release(
        self,
        *,
        drop: bool = False,
        dry_run: bool = False,
        on_progress: Callable[[DeadLetterProgress], object] | None = None,
        **selection: Unpack[LetterSelection],
    ) -> DeadLetterResult:
        """Has waiting messages delivered again, or dropped; see `kafka_pubsub.Subscription.release`."""
        return await _long(
            lambda tell: self._sync.release(
                drop=drop,
                dry_run=dry_run,
                on_progress=tell,
                **selection,
            ),
            on_progress,
        )

    async def keys(self) -> list[KeyState]:
        """Returns the keys that are parked, waiting or leased in any process, and why, as stored in Kafka."""
        return await asyncio.to_thread(self._sync.keys)

    async def delete(self) -> None:
        """Deletes the subscription, its position and its retry topic; its streams end with `NotFound`."""
        await close_on_thread(self._sync.delete)

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"


class _Cancelled(Exception):
    """An exception that ends the call in its thread at its next progress report, after the caller was cancelled."""


async def _long(
    call: Callable[[Callable[[DeadLetterProgress], object]], DeadLetterResult],
    on_progress: Callable[[DeadLetterProgress], object] | None,
) -> DeadLetterResult:
    """Runs the call in a thread, reports its progress on the loop, and stops it when the caller is cancelled."""
    loop, cancelled = asyncio.get_running_loop(), False

    def tell(progress: DeadLetterProgress) -> None:
        if cancelled:
            raise _Cancelled
        if on_progress is not None:
            loop.call_soon_threadsafe(on_progress, progress)

    running = asyncio.ensure_future(asyncio.to_thread(call, tell))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancelled = True
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


def _give_back(got: asyncio.Future[list[Message]]) -> None:
    if got.cancelled() or got.exception() is not None:
        return
    for message in got.result():
        message.nack()


def _check_coroutine_function(callback: object) -> None:
    if not callable(callback):
        raise InvalidArgument(f"callback must be a coroutine function (async def), not {callback!r}")
    call = getattr(callback, "__call__", None)  # noqa: B004  # an object whose __call__ is async def
    if not any(inspect.iscoroutinefunction(each) for each in (callback, call)):
        raise InvalidArgument(
            f"callback must be a coroutine function (async def), and {callback!r} isn't; "
            "kafka_pubsub.PubSub takes plain functions"
        )
