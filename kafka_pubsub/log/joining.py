"""Waits for threads that should end, and logs which thread doesn't and where it hangs.

Rules
1. A close always ends, even if a call to Kafka hangs: threads are daemons and can be left behind.
2. The log names a thread that is left behind, with its stack, because its reader has no debugger at hand.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

__all__ = ["StreamThread", "join"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds that every thread gets to end; a thread that isn't blocked needs milliseconds.
_LEAST = 0.1

Argument = TypeVar("Argument")


class StreamThread(threading.Thread):
    """A thread that may run callbacks. A stream that it closes itself doesn't wait for it; another thread would."""

    def __init__(self, target: Callable[[Argument], None], argument: Argument, name: str) -> None:
        super().__init__(target=target, args=(argument,), name=name, daemon=True)


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
