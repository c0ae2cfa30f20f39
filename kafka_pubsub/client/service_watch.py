"""Warns a process that publishes what a service must bring on, while no such service runs.

Theory. A delayed message waits for a router, and a message to causal topics for a sequencer. The log takes both without
one, so the publisher alone would never learn that nothing is delivered. A group's number of members says whether a
service runs, in any process; one small request, a few seconds after a message.

Rules
1. A look follows a message within `LOOK` seconds, or at the close. Without a message since the last look there is none.
2. The first look that finds no service warns, later ones once in `SAY` seconds. A look that fails says nothing.
3. The thread starts with the first message, and has ended when `close` returns, unless a cluster doesn't answer it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from kafka_pubsub.errors import PubSubError

__all__ = ["LOOK", "SAY", "ServiceWatch"]

_log = logging.getLogger("kafka_pubsub.publish")

#: Seconds between a message and the look that it causes: a service that starts beside the publisher has joined by then.
LOOK = 3.0
#: Seconds between two warnings of one outage.
SAY = 60.0
#: Seconds that `close` waits for a look that has begun: it takes milliseconds where a broker answers.
_CLOSING = 1.0


class ServiceWatch:
    """Watches one kind of service for the messages of one process.

    `count` asks how many run. `service` and `command` are the name of the service and the command that starts one;
    `waits` says what happens to messages without one.
    """

    def __init__(
        self,
        count: Callable[[], int],
        service: str,
        command: str,
        waits: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count, self._clock = count, clock
        self._service, self._command, self._waits = service, command, waits
        self._lock = threading.Lock()
        # Whether a message came since the last look began, and what wakes the thread for it.
        self._used = False
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        #: Whether the last look found that no service runs.
        self.missing = False
        self._said_at = float("-inf")

    def used(self) -> None:
        """Notes that a message was published; called for each."""
        if not self._used:
            self._used = True
            self._wake.set()
            if self._thread is None:
                self._start()

    @property
    def advice(self) -> str:
        """What to do if messages wait for long, by what the last look found."""
        if self.missing:
            return f"no {self._service} runs: `{self._command}` starts one"
        return f"is a {self._service} running? `{self._command}` starts one"

    def close(self, *, look: bool = True) -> None:
        """Ends the thread; with `look` (default True) after a last look, if a message came since the one before."""
        with self._lock:
            self._used = self._used and look
            self._ending.set()
            self._wake.set()
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSING)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._ending.is_set():
                name = f"kafka_pubsub-{self._service.replace(' ', '-')}-watch"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.wait()
            self._ending.wait(LOOK)
            self._wake.clear()  # before the flag: a message that comes in between is seen, or wakes
            used, self._used = self._used, False
            if used:
                self._look_and_go_on()

    def _look_and_go_on(self) -> None:
        try:
            self.look()
        except Exception:
            if not self._ending.is_set():  # else the client was closed under the look
                _log.exception("looking whether a %s runs failed; going on", self._service)

    def look(self) -> None:
        """Looks once whether a service runs, and says what has changed."""
        try:
            running = self._count() > 0
        except PubSubError as error:
            _log.debug("couldn't look whether a %s runs: %s", self._service, error)
            return
        now = self._clock()
        if running and self.missing:
            _log.info("a %s runs again", self._service)
        elif not running and (not self.missing or now - self._said_at >= SAY):
            self._said_at = now
            _log.warning("no %s runs: %s; `%s` starts one", self._service, self._waits, self._command)
        self.missing = not running
