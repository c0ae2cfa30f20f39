"""Waits for threads that should end, and logs which thread doesn't and where it hangs.

Rules
1. A close always ends, even if a call to Kafka hangs: threads are daemons and can be left behind.
2. The log names a thread that is left behind, with its stack, because its reader has no debugger at hand.
3. A close doesn't wait for a callback that has been waiting for a close for `_PATIENCE` seconds: that could be the same
   close, or two could wait for each other. A callback that closes something else in a moment is waited for. A thread
   can't be told of such a callback while it joins, so it looks every `_LOOK` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["CALLBACK", "closing", "is_closing", "join", "join_all", "run_on_loop", "wait_over"]

log = logging.getLogger("kafka_pubsub.subscriber")

T = TypeVar("T")

#: Seconds that every thread gets to end; a thread that isn't blocked needs milliseconds.
_LEAST = 0.1

#: Seconds between two looks whether a callback has begun to wait for a close.
_LOOK = 0.05

#: Seconds after which a callback that waits for a close isn't waited for.
_PATIENCE = 1.0

#: The task of the callback as a part of which a coroutine runs, and the thread that waits for it; empty: there is none.
CALLBACK: ContextVar[tuple[object, ...]] = ContextVar("CALLBACK", default=())

# The threads, and tasks of event loops, that wait for a close, and since when.
_closing: dict[object, float] = {}


@contextlib.contextmanager
def closing(*waiting: object) -> Iterator[None]:
    """Notes that threads or tasks wait for a close."""
    new = [each for each in waiting if each not in _closing]
    _closing.update(dict.fromkeys(new, time.monotonic()))
    try:
        yield
    finally:
        for each in new:
            _closing.pop(each, None)


def is_closing(waiting: object) -> bool:
    """Returns whether a close doesn't wait for a thread or task: because that waits for a close itself."""
    since = _closing.get(waiting)
    return waiting is threading.current_thread() or (
        since is not None and time.monotonic() - since > _PATIENCE
    )


def run_on_loop(callback: Callable[[], Coroutine[object, object, T]], loop: asyncio.AbstractEventLoop) -> T:
    """Runs a coroutine function on the loop, and waits for its end; for a thread that isn't the loop's."""
    thread = threading.current_thread()

    async def run() -> T:
        CALLBACK.set((asyncio.current_task(), thread))
        return await callback()

    return asyncio.run_coroutine_threadsafe(run(), loop).result()


def join_all(threads: Sequence[threading.Thread], timeout: float | None) -> bool:
    """Waits for threads that don't wait for a close themselves; False if one still runs after `timeout` seconds."""
    until = None if timeout is None else time.monotonic() + timeout
    for thread in threads:
        while thread.is_alive() and not is_closing(thread):
            left = _LOOK if until is None else min(_LOOK, until - time.monotonic())
            if left <= 0:
                return False
            thread.join(left)
    return True


def wait_over(changed: threading.Condition, over: Callable[[], bool], timeout: float | None) -> bool:
    """Waits until callbacks are `over`, as told by `changed`, or wait for a close; False after `timeout` seconds."""
    until = None if timeout is None else time.monotonic() + timeout
    with changed:
        while not over():
            left = _LOOK if until is None else min(_LOOK, until - time.monotonic())
            if left <= 0:
                return False
            changed.wait(left)
    return True


def join(thread: threading.Thread | None, until: float | None, whose: str) -> None:
    """Waits for a thread's end until the moment `until` of the monotonic clock (None: without a limit)."""
    if thread is None or thread is threading.current_thread():
        return
    thread.join(None if until is None else max(_LEAST, until - time.monotonic()))
    if thread.is_alive():
        log.warning("subscription %r: its thread %s is left behind: %s", whose, thread.name, _place(thread))


def _place(thread: threading.Thread) -> str:
    """Describes the thread's innermost calls."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "it has just ended"
    steps = traceback.extract_stack(frame)[-3:]
    return "it is in " + " > ".join(f"{step.name} ({step.filename}:{step.lineno})" for step in steps)
