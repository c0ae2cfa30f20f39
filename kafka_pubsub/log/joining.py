"""Waits for threads that should end, and logs which thread doesn't and where it hangs.

Rules
1. A close always ends, even if a call to Kafka hangs: threads are daemons and can be left behind.
2. The log names a thread that is left behind, with its stack, because its reader has no debugger at hand.
3. A close doesn't wait for a callback that waits for a close itself: that could be the same one, or two could wait for
   each other. A thread can't be told of such a callback while it joins, so it looks every `_LOOK` seconds.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

__all__ = ["closing", "is_closing", "join", "join_all", "wait_over"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds that every thread gets to end; a thread that isn't blocked needs milliseconds.
_LEAST = 0.1

#: Seconds between two looks whether a callback has begun to wait for a close.
_LOOK = 0.05

# The threads, and tasks of event loops, that wait for a close.
_closing: set[object] = set()


@contextlib.contextmanager
def closing(who: object) -> Iterator[None]:
    """Notes that `who`, a thread or a task, waits for a close."""
    if who in _closing:
        yield
        return
    _closing.add(who)
    try:
        yield
    finally:
        _closing.discard(who)


def is_closing(who: object) -> bool:
    """Returns whether a close doesn't wait for `who`: it waits for a close itself."""
    return who in _closing or who is threading.current_thread()


def join_all(threads: Sequence[threading.Thread], timeout: float | None) -> bool:
    """Waits for threads, except those that wait for a close; False if one still runs after `timeout` seconds."""
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
