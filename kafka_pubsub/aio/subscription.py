"""A handle on a subscription, for coroutines.

Rules
1. Callbacks are coroutine functions, run as tasks of the loop that called `pull`.
2. A `receive` that is cancelled gives back what it got at that moment: those messages are delivered again at once.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Final

from kafka_pubsub.aio.stream import Opening
from kafka_pubsub.client.state import SubscriptionState
from kafka_pubsub.client.subscription import Subscription as SyncSubscription
from kafka_pubsub.config import FlowControl, SubscriptionOptions
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.model import Message

__all__ = ["Subscription"]

#: Seconds that a thread waits for messages before it is given back: a loop that ends waits as long for it.
SLICE: Final = 1.0


class Subscription:
    """A subscription by name; made by `PubSub.subscription` and `PubSub.create_subscription`.

    Example:
        async def handle(message):
            await work(message.data)
            message.ack()

        async with ps.subscription("billing").pull(handle) as stream:
            await stream.result(timeout=60)
    """

    __slots__ = ("_sync",)

    def __init__(self, sync: SyncSubscription) -> None:
        self._sync = sync

    @property
    def name(self) -> str:
        """The subscription's name, which is also the consumer group's."""
        return self._sync.name

    async def topic(self) -> str:
        """The name of the topic that it receives from."""
        return await asyncio.to_thread(lambda: self._sync.topic)

    async def options(self) -> SubscriptionOptions:
        """The stored configuration, read from the catalog now."""
        return await asyncio.to_thread(lambda: self._sync.options)

    def pull(
        self,
        callback: Callable[[Message], Awaitable[object]],
        *,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
    ) -> Opening:
        """Runs `callback` with each message until the stream is closed; one message of a key at a time.

        `async with sub.pull(...) as stream`, or `stream = await sub.pull(...)`. At most `max_workers` tasks run.
        """
        _check_coroutine_function(callback)
        loop = asyncio.get_running_loop()
        return Opening(lambda: self._sync.pull_async(callback, loop, flow=flow, max_workers=max_workers))

    def pull_batch(
        self,
        callback: Callable[[list[Message]], Coroutine[object, object, object]],
        *,
        max_messages: int = 100,
        max_latency: float | timedelta = 0.05,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
    ) -> Opening:
        """Runs `callback` with lists: messages of distinct keys, or one key's run in its order."""
        _check_coroutine_function(callback)
        loop = asyncio.get_running_loop()

        def run(messages: list[Message]) -> object:
            return asyncio.run_coroutine_threadsafe(callback(messages), loop).result()

        return Opening(
            lambda: self._sync.pull_batch(
                run, max_messages=max_messages, max_latency=max_latency, flow=flow, max_workers=max_workers
            )
        )

    async def receive(self, max_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Up to `max_messages`, waiting up to `timeout` seconds for the first; an empty list if none came."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE if until is None else min(SLICE, max(0.0, until - time.monotonic()))
            # A wrong timeout is for the twin to refuse.
            wait = timeout if timeout is not None and not timeout >= 0 else left
            messages = await self._receive(max_messages, wait)
            if messages or (until is not None and time.monotonic() >= until):
                return messages

    async def _receive(self, max_messages: int, timeout: float | None) -> list[Message]:
        loop = asyncio.get_running_loop()
        got = loop.run_in_executor(None, self._sync.receive, max_messages, timeout)
        try:
            return await asyncio.shield(got)
        except asyncio.CancelledError:
            got.add_done_callback(_give_back)
            raise

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        """Acks messages by `message.ack_id`."""
        self._sync.acknowledge(ack_ids)

    async def modify_ack_deadline(self, ack_ids: Sequence[str], seconds: float) -> None:
        """Moves the deadlines to `seconds` from now; 0 is a nack."""
        self._sync.modify_ack_deadline(ack_ids, seconds)

    async def seek(self, target: datetime | str) -> None:
        """Moves the subscription to a time, a snapshot, "earliest" or "latest": not supported yet."""
        self._sync.seek(target)

    async def detach(self) -> None:
        """Cuts the subscription off its topic: not supported yet."""
        self._sync.detach()

    async def state(self) -> SubscriptionState:
        """Lag, in flight, and the keys that are blocked, with the reason for each."""
        return await asyncio.to_thread(self._sync.state)

    async def delete(self) -> None:
        """Deletes the subscription and its position; its streams end with `NotFound`."""
        await asyncio.to_thread(self._sync.delete)

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"


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
