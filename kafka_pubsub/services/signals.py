"""Ctrl-C and SIGTERM: the first signal asks a command to end cleanly, the second ends it.

Theory: by default a signal raises `Stopped` in the main thread, so that every `with` on the way closes what it
opened, and the program ends with 128 + the signal's number. That may be at any step. A command that
counts messages asks for a flag instead, and checks the flag only between two messages.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

__all__ = ["StopFlag", "Stopped", "raise_on_stop", "stop_flag"]

T = TypeVar("T")

#: Seconds between two checks of a flag in a wait.
LOOK_S = 0.02

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal asked the program to end. Not an `Exception`: nothing on the way may mistake it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class StopFlag:
    """A flag that a signal sets; `number` is the signal's number.

    It isn't a `threading.Event`, because Python runs a signal's handler on the main thread, between any two of its
    steps: inside `Event.wait` it would wait for a lock that its own thread holds.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._is_set = self._waiting = False

    def is_set(self) -> bool:
        """Returns whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Sets the flag; safe in a signal's handler."""
        self._is_set = True

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the flag is set, `timeout` seconds at most; returns whether it is set."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not self._is_set and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
        return self._is_set

    def wait_for(self, call: Callable[[], T]) -> T:
        """Makes a call that may wait for ever (a read from a terminal); a signal ends it with `Stopped`."""
        self._waiting = True
        try:
            self.raise_if_set()
            return call()
        finally:
            self._waiting = False

    def raise_if_set(self) -> None:
        """Raises `Stopped` if the flag is set; for places where that does no harm."""
        if self.number is not None:
            raise Stopped(self.number)

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handles the signal."""
        _second_one_kills()
        self.number = number
        self.set()
        if self._waiting:
            raise Stopped(number)


def _second_one_kills() -> None:
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    _second_one_kills()
    raise Stopped(number)


def raise_on_stop() -> None:
    """Makes Ctrl-C and SIGTERM raise `Stopped` in the main thread from now on."""
    for number in STOPPING:
        signal.signal(number, _raise)


@contextlib.contextmanager
def stop_flag() -> Iterator[StopFlag]:
    """Yields a flag that Ctrl-C and SIGTERM set inside the block; close there what must close in order."""
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    before = {number: signal.signal(number, flag.take) for number in STOPPING}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
