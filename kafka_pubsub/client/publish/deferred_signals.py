"""Signals that wait: work that Ctrl-C must not cut short, on a thread that it may hit.

Theory. Python runs signal handlers on the main thread, between any two instructions of it; Ctrl-C's raises there. A
delivery report that is cut short is lost, and its message would never be counted as stored. So while the main thread
serves reports, handlers only note that they were called; they run when it has finished, a few milliseconds later.
On every other thread there is nothing to do.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["signals_wait"]

_Handler = Callable[[int, FrameType | None], Any]

# Without the detour that makes an enumeration's member of each answer: 64 of these cost 35 us.
_current_handler: Callable[[int], _Handler | int | None] = getattr(
    signal.getsignal, "__wrapped__", signal.getsignal
)

_SIGNALS = tuple(sorted(map(int, signal.valid_signals())))


def signals_wait(work: Callable[[], object]) -> None:
    """Does `work`; what signals ask for meanwhile is done afterwards."""
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    noted: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, _Handler] = {}
    try:
        for number in _SIGNALS:
            handler = _current_handler(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda number, frame: noted.append((int(number), frame)))
        work()
    finally:
        with contextlib.ExitStack() as afterwards:  # each, even if another one raises
            for called, frame in reversed(noted):
                afterwards.callback(handlers[called], called, frame)
            _restore(handlers)


def _restore(handlers: dict[int, _Handler]) -> None:
    """Puts handlers back; one that is called in the middle of this, and raises, doesn't stop it."""
    raised: BaseException | None = None
    for number, handler in handlers.items():
        try:
            signal.signal(number, handler)
        except BaseException as error:
            signal.signal(number, handler)
            raised = raised or error
    if raised is not None:
        raise raised
