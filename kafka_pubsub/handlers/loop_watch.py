"""Notices a coroutine that blocks its event loop, and names the handler and the line.

Theory. A handler that waits without `await` stops every other handler of its loop, and what else runs there. Nothing of
that is an error, and all of it looks like a slow broker. So a thread asks the loop for a sign of life, and after an ack
deadline without one it looks what the loop's thread runs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Mapping
from types import CodeType, FrameType

__all__ = ["LoopWatch"]

log = logging.getLogger("kafka_pubsub.app")

#: Signs of life that are asked for in each limit.
_SIGNS = 4


class LoopWatch:
    """Watches a loop on a thread of its own.

    `handlers`: how a warning names a handler, by its code. `limit`: the seconds after which a loop counts as blocked.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handlers: Mapping[CodeType, str], limit: float
    ) -> None:
        self._loop = loop
        self._handlers = handlers
        self._limit = limit
        # The loop's thread, None until its first sign; and when it gave the last one.
        self._ident: int | None = None
        self._sign_at = time.monotonic()
        self._warned = False
        self._ending = threading.Event()
        loop.call_soon_threadsafe(self._sign)
        self._thread = threading.Thread(target=self._watch, name="kafka_pubsub-loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the watch."""
        self._ending.set()

    def _watch(self) -> None:
        while not self._ending.wait(self._limit / _SIGNS):
            late = time.monotonic() - self._sign_at > self._limit
            if late and self._ident is not None and not self._warned:
                self._warned = True
                self._warn(sys._current_frames().get(self._ident))
            try:
                self._loop.call_soon_threadsafe(self._sign)
            except RuntimeError:
                return  # the loop is closed

    def _sign(self) -> None:
        self._ident = threading.get_ident()
        self._sign_at, self._warned = time.monotonic(), False

    def _warn(self, frame: FrameType | None) -> None:
        place = "" if frame is None else f" at {frame.f_code.co_filename}:{frame.f_lineno}"
        log.warning(
            "%s blocks its event loop for %.0f s%s: no other coroutine runs meanwhile. Await what waits, or make the "
            "handler a plain `def`, which runs on a thread",
            self._name(frame),
            time.monotonic() - self._sign_at,
            place,
        )

    def _name(self, frame: FrameType | None) -> str:
        while frame is not None:
            name = self._handlers.get(frame.f_code)
            if name is not None:
                return name
            frame = frame.f_back
        return "something beside the handlers"
