"""Turns: which requests of a push may begin, on one event loop.

Rules
1. Requests begin in the order in which their messages came, as many at a time as the pace allows.
2. A message that waits looks every `LOOK` seconds whether it may still be sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from kafka_pubsub.handlers.outcomes import Retry
from kafka_pubsub.worker.push.pace import Pace

__all__ = ["Turns"]

#: Seconds.
LOOK = 1.0


class Turns:
    """Lets requests begin as a pace allows."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self, is_over: Callable[[], bool]) -> None:
        """Waits for a turn; raises `Retry` if `is_over` becomes true before."""
        if not self._waiting and self.pace.may_begin(self._running, time.monotonic()):
            self._running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            while True:
                pause = self.pace.pause_until - time.monotonic()
                await asyncio.wait([turn], timeout=pause if 0 < pause < LOOK else LOOK)
                self._wake()
                if is_over():
                    raise Retry("its lease or the worker ended before its request could begin", delay=0)
                if turn.done():
                    return
        except BaseException:
            if turn.done():
                self.end()
            else:
                self._waiting.remove(turn)
            raise

    @property
    def is_paused(self) -> bool:
        """Whether the endpoint has asked for a pause that isn't over."""
        return time.monotonic() < self.pace.pause_until

    def end(self) -> None:
        """Ends a turn."""
        self._running -= 1
        self._wake()

    def note(self, *, ok: bool | None, pause: float | None) -> None:
        """Takes an answer into the pace. `ok` None: it says nothing new.

        `pause`: the seconds that the endpoint asked for; None: it didn't.
        """
        if ok is not None:
            self.pace = self.pace.succeeded() if ok else self.pace.failed()
        if pause is not None:
            self.pace = self.pace.paused(pause, time.monotonic())
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.pace.may_begin(self._running, time.monotonic()):
            self._running += 1
            self._waiting.popleft().set_result(None)
