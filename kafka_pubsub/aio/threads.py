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
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kafka_pubsub.log.joining import CALLBACK, closing

__all__ = ["close_on_thread", "run_on_thread"]

T = TypeVar("T")


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
    with closing(*CALLBACK.get()):
        return await run_on_thread(close)
