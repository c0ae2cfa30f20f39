"""The clock of the in-memory Kafka, for timestamps, due times and deadlines.

Theory. With a `VirtualClock` a test moves the time. Streams, services and publishers of the cluster enter the clock as
sleepers: each says when it has something to do by itself, and whether it is at work. So `advance` goes from one due
time to the next, and at each it waits until nothing is under way any more. Threads wait for each other in real time.

Rules
1. `now` is seconds since the epoch and never goes back.
2. A virtual clock stands still, but for short waits: if something is due within `SHORT` seconds, the time goes on
   until then as fast as the real one. So a commit, or a redelivery without a backoff, needs no `advance`.
3. `advance` goes on by up to `LATE` seconds for what is due then: due times are whole milliseconds, and streams group
   what is due within 20 ms.
4. Nothing is asked of a sleeper but `due_at` while the clock's lock is held: what it does may ask for the time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.log.ports import Sleeper

__all__ = ["Clock", "SystemClock", "VirtualClock"]

#: Seconds: the longest wait that passes by itself, and how far `advance` goes on for what is due.
SHORT, LATE = 0.25, 0.025
#: Real seconds between two looks whether something is under way, and between two calls that wake all sleepers.
_LOOK, _WAKE = 0.0005, 0.01


class Clock(Protocol):
    """A source of the time."""

    def now(self) -> float:
        """Returns the seconds since the epoch."""
        ...


class SystemClock:
    """The real time, taken from the monotonic clock, so that a corrected wall clock expires no session."""

    def __init__(self) -> None:
        self._start = time.time() - time.monotonic()

    def now(self) -> float:
        """Returns the seconds since the epoch."""
        return self._start + time.monotonic()


class VirtualClock:
    """A clock that a test moves, for `PubSub.in_memory(clock=)` (docs/testing.md).

    `start` is its time at first, in seconds since the epoch. Waits of up to a quarter of a second pass by themselves;
    longer ones end when you call `advance`.

    Example:
        clock = VirtualClock()
        with PubSub.in_memory(clock=clock) as ps:
            ps.create_topic("orders").publish(b"later", delay=30)
            clock.advance(30)
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start
        self._lock = threading.Lock()
        # Held by the `advance` that runs.
        self._moving = threading.Lock()
        # A dict for its order.
        self._sleepers: dict[Sleeper, None] = {}
        self._advancing = False
        # Until when the time goes on by itself, None: it stands still; and the real time at the last look.
        self._until: float | None = None
        self._looked_at = 0.0

    def now(self) -> float:
        """Returns the seconds since the epoch on this clock."""
        if not self._sleepers:
            return self._now
        with self._lock:
            self._go_on()
            return self._now

    def advance(self, seconds: float | timedelta, *, timeout: float = 10.0, callbacks: bool = True) -> None:
        """Moves the time forward, and returns when everything that became due is done.

        It stops at each due time on the way: of a delay, a backoff, a deadline. There, and at its end, it waits until
        all messages were handed to callbacks, all callbacks have returned, and nothing more is stored or read.
        `timeout` (default 10) is the limit of each such wait in real seconds; then it raises `DeadlineExceeded`, which
        says what is under way, and the clock stays where it is. With `callbacks=False` (default True) it doesn't wait
        for callbacks that run, for a test of one that lasts. It refuses a negative number of seconds. In a coroutine,
        call it on a thread: `await asyncio.to_thread(clock.advance, 30)`.
        """
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if seconds < 0:
            raise ValueError(f"time doesn't go back: advance({seconds})")
        with self._moving:
            if not self._sleepers:
                self._now += seconds
                return
            self._advancing = True
            try:
                self._advance(seconds, timeout, callbacks=callbacks)
            finally:
                self._advancing = False

    def due_at(self, *, leave_out: type[Sleeper] | None = None) -> float | None:
        """Returns when something is to be done by itself next: a delay, a backoff, a deadline; None: nothing waits.

        `leave_out` (default None): a kind of sleepers whose times don't count.
        """
        with self._lock:
            return self._first_due(leave_out)

    def jump(self, seconds: float, *, timeout: float = 10.0) -> None:
        """Moves the time forward without a stop on the way, and waits there as `advance` does.

        It doesn't wait before it moves: jump by 0 first, unless the last call was one.
        """
        with self._moving:
            self._advancing = True
            try:
                with self._lock:
                    self._now += max(0.0, seconds)
                self._settle(timeout, callbacks=True)
            finally:
                self._advancing = False

    def enter(self, sleeper: Sleeper) -> None:
        """Adds what does things at times of this clock, until `leave`."""
        with self._lock:
            self._sleepers[sleeper] = None

    def leave(self, sleeper: Sleeper) -> None:
        """Forgets a sleeper; one that isn't there is ignored."""
        with self._lock:
            self._sleepers.pop(sleeper, None)

    def _go_on(self) -> None:
        """Lets a short wait pass (rule 2); needs the lock."""
        real = time.monotonic()
        if self._advancing:  # the time stands still, or is moved
            self._until = None
            return
        if self._until is not None:
            self._now = max(self._now, min(self._until, self._now + real - self._looked_at))
        self._looked_at = real
        due = self._first_due()
        self._until = due if due is not None and due <= self._now + SHORT else None

    def _first_due(self, leave_out: type[Sleeper] | None = None) -> float | None:
        """Returns when the first sleeper has something to do by itself; needs the lock."""
        times = (
            sleeper.due_at()
            for sleeper in self._sleepers
            if leave_out is None or not isinstance(sleeper, leave_out)
        )
        return min((at for at in times if at is not None), default=None)

    def _advance(self, seconds: float, timeout: float, *, callbacks: bool) -> None:
        self._settle(timeout, callbacks=callbacks)
        target = self._now + seconds
        while True:
            with self._lock:
                due = self._first_due()
                if due is None or not self._now < due <= target + LATE:
                    if self._now >= target:
                        return
                    due = target
                self._now = due
            self._settle(timeout, callbacks=callbacks)

    def _settle(self, timeout: float, *, callbacks: bool) -> None:
        """Waits until nothing is under way."""
        wake_at, until = 0.0, time.monotonic() + timeout
        while True:
            if (real := time.monotonic()) >= wake_at:
                wake_at = real + _WAKE
                for sleeper in tuple(self._sleepers):
                    sleeper.wake()
            at_work = self._under_way(callbacks=callbacks)
            if not at_work:
                return
            if real > until:
                raise DeadlineExceeded(f"advance: after {timeout:g} s of real time, {at_work}{_hint()}")
            time.sleep(_LOOK)

    def _under_way(self, *, callbacks: bool) -> str:
        """Returns what is under way; empty: nothing. It looks twice, because one sleeper gives work to another."""
        for _ in range(2):
            for sleeper in tuple(self._sleepers):
                if at_work := sleeper.under_way(callbacks=callbacks):
                    return at_work
            with self._lock:
                if any((at := each.due_at()) is not None and at <= self._now for each in self._sleepers):
                    return "something that is due isn't done"
        return ""


def _hint() -> str:
    with suppress(RuntimeError):  # no loop runs here
        asyncio.get_running_loop()
        return "; this call blocks the event loop: use `await asyncio.to_thread(clock.advance, seconds)`"
    return ""
