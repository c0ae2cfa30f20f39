"""Ctrl-C and SIGTERM: the first asks a command to end well, the second ends it.

Theory: by default a signal raises `Stopped` in the main thread, so that every `with` on the way closes what it
opened, and the program ends with 128 + the signal's number. A command whose only way to end is a signal
(`pull --follow`) asks for a flag instead and ends with 0.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Stopped", "raise_on_stop", "stop_flag"]

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal asked the program to end. Not an `Exception`: nothing on the way may mistake it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def _second_one_kills() -> None:
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    _second_one_kills()
    raise Stopped(number)


def raise_on_stop() -> None:
    """From now on Ctrl-C and SIGTERM raise `Stopped` in the main thread."""
    for number in STOPPING:
        signal.signal(number, _raise)


@contextlib.contextmanager
def stop_flag() -> Iterator[threading.Event]:
    """Inside, Ctrl-C and SIGTERM set the flag that this yields; close there what must close in order."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def set_flag(number: int, frame: FrameType | None) -> None:
        _second_one_kills()
        flag.set()

    before = {number: signal.signal(number, set_flag) for number in STOPPING}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
