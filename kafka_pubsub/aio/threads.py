"""Calls on threads, for coroutines: calls that may last, and those that close something.

Theory. `asyncio.to_thread` has few threads, and a loop and the interpreter wait for these at their end. So a call that
may last for ever would keep a program from ending, though its caller was cancelled, and some of them all other calls.
A call here has a thread of its own, which nothing waits for.

Rules
1. A cancelled caller leaves its call to go on; what the call returns is given to `undo`.
2. No close waits for a callback that waits for a close (`joining`), nor for the thread that waits for the callback.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TypeVar

from kafka_pubsub.log.joining import closing

__all__ = ["close_on_thread", "run_on_loop", "run_on_thread"]

T = TypeVar("T")

#: The tasks for which a thread waits in `run_on_loop`.
_waiting: dict[asyncio.Task[object] | None, threading.Thread] = {}


async def run_on_thread(call: Callable[[], T], undo: Callable[[T], object] = lambda result: None) -> T:
    """Returns the result of `call`; `undo` gets it, on any thread, if the caller was cancelled before."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # from here on a cancelled caller can't cancel it

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    def undo_late(answer: Future[T]) -> None:
        if answer.exception() is None:
            undo(answer.result())

    threading.Thread(target=run, name="kafka_pubsub-aio", daemon=True).start()
    try:
        return await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        answer.add_done_callback(undo_late)
        raise


async def close_on_thread(close: Callable[[], T]) -> T:
    """Returns the result of `close`, which doesn't wait for the caller if that is a callback."""
    task = asyncio.current_task()
    with contextlib.ExitStack() as marks:
        marks.enter_context(closing(task))
        if (thread := _waiting.get(task)) is not None:
            marks.enter_context(closing(thread))
        return await run_on_thread(close)


def run_on_loop(callback: Callable[[], Coroutine[object, object, T]], loop: asyncio.AbstractEventLoop) -> T:
    """Runs a coroutine function on the loop, and waits for its end; for a thread that isn't the loop's."""
    thread = threading.current_thread()

    async def run() -> T:
        task = asyncio.current_task()
        _waiting[task] = thread
        try:
            return await callback()
        finally:
            _waiting.pop(task)

    return asyncio.run_coroutine_threadsafe(run(), loop).result()
