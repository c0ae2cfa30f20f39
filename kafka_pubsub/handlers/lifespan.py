"""What an app opens before its first message and closes after its last: context managers, sync or async.

Rules
1. An asynchronous one is entered and left in one task of the loop on which the handlers run, as its libraries expect.
2. Leaving takes as long as it takes, but a loop that a handler blocks isn't waited for: a stop says so and returns, and
   the manager is left when the loop goes on, if the process is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import cast

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.handlers.parameters import place_of

__all__ = ["LoopThread", "Manager", "managers_of", "on_loop"]

log = logging.getLogger("kafka_pubsub.app")

#: Seconds within which a loop must take up that a manager is to be left.
_ANSWER = 2.0
#: The name of the tasks in which managers are entered and left.
_TASK = "kafka_pubsub-lifespan"

Manager = AbstractContextManager[object] | AbstractAsyncContextManager[object]


def managers_of(makers: list[Callable[..., object]], app: object) -> list[Manager]:
    """Returns the context managers that these functions make; one with a parameter gets the app."""
    return [_manager(make, app) for make in makers]


def _manager(make: Callable[..., object], app: object) -> Manager:
    if inspect.isgeneratorfunction(make):
        make = contextlib.contextmanager(make)
    elif inspect.isasyncgenfunction(make):
        make = contextlib.asynccontextmanager(make)
    made = make(app) if inspect.signature(make).parameters else make()
    if isinstance(made, (AbstractContextManager, AbstractAsyncContextManager)):
        return cast("Manager", made)
    raise InvalidArgument(
        f"lifespan {place_of(make)} must be a context manager, or a function that yields once, not "
        f"{type(made).__name__}: write `@app.lifespan` above `def resources(): ...; yield; ...`"
    )


class LoopThread:
    """An event loop on a thread of its own, for the coroutines of an app that runs without one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kafka_pubsub-app-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            if left := [task for task in asyncio.all_tasks(self.loop) if task.get_name() == _TASK]:
                self.loop.run_until_complete(asyncio.wait(left))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def close(self) -> None:
        """Ends the loop, and waits for its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_ANSWER)


@contextlib.contextmanager
def on_loop(manager: AbstractAsyncContextManager[object], loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Enters an asynchronous context manager on a loop of another thread, and leaves it in the same task."""
    entered: Future[None] = Future()
    leave, leaving = asyncio.Event(), threading.Event()

    async def keep() -> None:
        if (task := asyncio.current_task()) is not None:
            task.set_name(_TASK)
        try:
            async with manager:
                entered.set_result(None)
                try:
                    await leave.wait()
                finally:
                    leaving.set()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    kept = asyncio.run_coroutine_threadsafe(keep(), loop)
    entered.result()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(leave.set)
        if leaving.wait(_ANSWER):
            kept.result()
        else:
            log.warning(
                "the event loop has been blocked for %d s, so a lifespan isn't closed yet: a handler that is a "
                "coroutine function must not wait without `await`",
                _ANSWER,
            )
