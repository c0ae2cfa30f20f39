"""Warns a process whose messages need a service, while no such service runs.

Theory. A delayed message waits for a router, and a message to causal topics for a sequencer. The log takes both without
one, so the publisher alone would never learn that nothing is delivered. A group's number of members says whether a
service runs, in any process; one small request, a few seconds after a message.

Rules
1. A look follows a message within `LOOK` seconds, or at the close. Without a message since the last look there is none.
2. The first look that finds no service warns, later ones once in `SAY` seconds. A look that fails says nothing;
   the log names a missing right once, as information.
3. The thread starts with the first message, and has ended when `close` returns, unless a cluster doesn't answer it.
4. A client in memory may have a service of its own instead (`run_own`). It starts with the first message that needs it,
   and ends with the client, or when your program starts one for the same client.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from kafka_pubsub.errors import PermissionDenied, PubSubError

__all__ = ["LOOK", "SAY", "OwnService", "ServiceWatch"]

_log = logging.getLogger("kafka_pubsub.publish")

#: Seconds between a message and the look that it causes: a service that starts beside the publisher has joined by then.
LOOK = 3.0
#: Seconds between two warnings of one outage.
SAY = 60.0
#: Seconds that `close` waits for a look that has begun: it takes milliseconds where a broker answers.
_CLOSING = 1.0


class OwnService(Protocol):
    """A service that runs in this process."""

    def stop(self) -> object:
        """Ends it, after the work that it has begun."""


class ServiceWatch:
    """Watches one kind of service for the messages of one process.

    `service` and `command` are the name of the service and the command that starts one; `waits` says what happens to
    messages without one.
    """

    def __init__(
        self, service: str, command: str, waits: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        #: Asks whether one runs; set it before the first message.
        self.running: Callable[[], bool] = lambda: False
        self._clock = clock
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
        # Whether the last look was forbidden.
        self._denied = False
        # What starts a service for this client, and the service (rule 4).
        self._start_own: Callable[[], OwnService] | None = None
        self._own: OwnService | None = None
        # Whether the program runs a service for this client itself: it has probably ended before the client does.
        self._run_by_program = False

    def run_own(self, start: Callable[[], OwnService]) -> None:
        """Has a service started with the first message that needs it; call this before any message."""
        self._start_own = start

    def run_by_program(self) -> None:
        """Notes that the program starts a service for this client: it takes the place of the client's own."""
        with self._lock:
            self._run_by_program, self._start_own = True, None
            own, self._own = self._own, None
            self._used = self._used and own is None
        if own is not None:
            own.stop()

    def used(self) -> None:
        """Notes that a message was published; called for each."""
        if not self._used:
            self._used = True
            self._wake.set()
            if self._thread is None:
                self._begin()

    @property
    def advice(self) -> str:
        """What to do if messages wait for long, by what the last look found."""
        if self.missing:
            return f"no {self._service} runs: `{self._command}` starts one"
        return f"is a {self._service} running? `{self._command}` starts one"

    def close(self, *, look: bool = True) -> None:
        """Ends the thread, and the client's own service.

        With `look` (default True) the thread looks a last time, if a message came since its last look.
        """
        self.end_looks(look=look)
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.stop()

    def end_looks(self, *, look: bool = True) -> None:
        """Ends the thread; the client's own service goes on."""
        with self._lock:
            self._used = self._used and look and not self._run_by_program
            self._ending.set()
            self._wake.set()
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSING)

    def _begin(self) -> None:
        with self._lock:
            if self._ending.is_set() or self._own is not None:
                return
            if self._start_own is not None:
                self._own = self._start_own()
            elif self._thread is None:
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
            running = self.running()
        except PubSubError as error:
            denied = isinstance(error, PermissionDenied)
            level = logging.INFO if denied and not self._denied else logging.DEBUG
            self._denied = denied
            _log.log(level, "couldn't look whether a %s runs: %s", self._service, error)
            return
        now = self._clock()
        if running and self.missing:
            _log.info("a %s runs again", self._service)
        elif not running and (not self.missing or now - self._said_at >= SAY):
            self._said_at = now
            _log.warning("no %s runs: %s; `%s` starts one", self._service, self._waits, self._command)
        self.missing = not running
