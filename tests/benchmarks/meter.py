"""The clock of every consuming row, from the end of the warm-up to the last message.

So joining a group, filling buffers and compiling just in time are nobody's cost. The count may be raised by many
threads at once: `itertools.count` is atomic under the interpreter's lock.
"""

from __future__ import annotations

import itertools
import threading
import time

__all__ = ["Meter"]


class Meter:
    """Counts messages and times the messages after the warm-up."""

    def __init__(self, warmup: int, measured: int) -> None:
        self.done = threading.Event()
        self._next = itertools.count(1).__next__
        self._counted = 0
        self._warmup = warmup
        self._last = warmup + measured
        self._started: tuple[int, float] | None = None
        self._ended: tuple[int, float] | None = None

    @property
    def last(self) -> int:
        """The number of messages after which the clock stops."""
        return self._last

    def one(self) -> None:
        """One more message, from any thread."""
        count = self._next()
        if count == self._warmup:
            self._started = count, time.perf_counter()
        elif count == self._last:
            self._ended = count, time.perf_counter()
            self.done.set()

    def many(self, number: int) -> bool:
        """So many more, from a single thread only; False when the row is over."""
        self._counted += number
        if self._started is None and self._counted >= self._warmup:
            self._started = self._counted, time.perf_counter()
        if self._counted >= self._last and not self.done.is_set():
            self._ended = self._counted, time.perf_counter()
            self.done.set()
        return not self.done.is_set()

    def rate(self) -> float:
        """Messages per second between the warm-up and the end."""
        if self._started is None or self._ended is None:
            raise RuntimeError(f"stopped before message {self._last}, so there is no rate")
        (first, started), (last, ended) = self._started, self._ended
        return (last - first) / (ended - started)

    def wait(self, patience: float) -> float:
        """Wait for the end and return the rate; `RuntimeError` after `patience` seconds."""
        if not self.done.wait(patience):
            raise RuntimeError(
                f"not through after {patience:.0f} s: about {self._next() - 1} of {self._last} messages"
            )
        return self.rate()
