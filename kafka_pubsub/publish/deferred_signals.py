"""Defers signals while the main thread does work that Ctrl-C must not interrupt.

Theory. Python runs signal handlers on the main thread, between any two of its instructions; Ctrl-C's handler raises
there. An interrupted delivery report is lost, and its message would never be counted as stored. So while the main
thread serves reports, handlers only note that they were called; they run when it has finished, a few milliseconds
later. Other threads need nothing, because no handler runs on them.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["signals_wait"]

_Handler = Callable[[int, FrameType | None], Any]

# `signal.getsignal` makes an enumeration's member of each answer: 64 of these cost 30 us, without that they cost 2.
_current_handler: Callable[[int], _Handler | int | None] = _signal.getsignal

_SIGNALS = tuple(sorted(map(int, signal.valid_signals())))


def signals_wait(work: Callable[[], object]) -> None:
    """Does `work`; handlers of signals that arrive meanwhile run afterwards."""
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
    """Restores the handlers, also if one of them is called meanwhile and raises."""
    raised: BaseException | None = None
    for number, handler in handlers.items():
        try:
            signal.signal(number, handler)
        except BaseException as error:
            signal.signal(number, handler)
            raised = raised or error
    if raised is not None:
        raise raised
