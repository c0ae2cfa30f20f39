"""Keeps units running, each on a thread of its own: one that fails touches no other.

Rules
1. A unit's thread compares what is wanted with what runs: it ends a unit whose settings have changed, then starts the
   new one. So any number of changes lead to the last one.
2. A unit that has ended by itself or can't start has failed: it is stopped, and starts again after a pause (`Life`).
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition, PubSubError
from kafka_pubsub.services.lifecycle import ServiceState
from kafka_pubsub.services.units import Unit
from kafka_pubsub.worker.life import Life, UnitState
from kafka_pubsub.worker.settings import UnitSettings

__all__ = ["NO_RESTARTS", "Restarts", "Runner", "Worker"]

log = logging.getLogger("kafka_pubsub.worker")

#: Seconds between two looks how a unit is: while it works, and while it doesn't.
LOOK, SOON = 1.0, 0.1

MakeUnit = Callable[[str, UnitSettings], Unit]


class Restarts(NamedTuple):
    """How often restarts of a unit were asked for; `failed`: those that concern it only where it has failed."""

    always: int = 0
    failed: int = 0


NO_RESTARTS = Restarts()


class Worker:
    """Runs the units that it is told to.

    `make`: makes a unit from its name and settings. `grace`: the seconds for which a unit may finish what it has begun.
    """

    def __init__(self, make: MakeUnit, *, grace: float) -> None:
        self._make, self._grace = make, grace
        self._runners: dict[str, Runner] = {}
        # Held by `follow`, which several threads may call.
        self._lock = threading.Lock()

    def follow(
        self,
        wanted: Mapping[str, UnitSettings],
        restarts: Mapping[str, Restarts] = MappingProxyType({}),
        *,
        revive: bool = True,
    ) -> None:
        """Runs these units and no others; returns at once.

        `restarts`: how often a restart of each was asked for; where that has changed, the unit starts again.
        `revive`: whether a unit that has given up starts again, too.
        """
        with self._lock:
            for name in wanted.keys() - self._runners.keys():
                self._runners[name] = Runner(name, self._make, self._grace)
            for name, runner in self._runners.items():
                runner.follow(wanted.get(name), restarts.get(name, NO_RESTARTS), revive=revive)

    def lives(self) -> dict[str, Life]:
        """Returns the state of each unit, those that end included."""
        return {
            name: runner.life
            for name, runner in sorted(self._runners.copy().items())
            if runner.wanted or not runner.has_ended(0)
        }

    def stop(self) -> list[str]:
        """Ends all units, within the grace for all of them together; returns those that didn't end in time."""
        self.follow({})
        end = time.monotonic() + self._grace
        return [
            name
            for name, each in self._runners.items()
            if not each.has_ended(max(0.0, end - time.monotonic()))
        ]


class Runner:
    """Keeps one unit running; the parameters are those of `Worker`."""

    def __init__(self, name: str, make: MakeUnit, grace: float) -> None:
        self._name, self._make, self._grace = name, make, grace
        self.life = Life()
        self.wanted: UnitSettings | None = None
        # Guards what is wanted, whether the thread goes on, and the number of the last call of `follow`.
        self._changed = threading.Condition()
        self._call = 0
        self._restarts = NO_RESTARTS
        self._thread: threading.Thread | None = None

    def follow(self, wanted: UnitSettings | None, restarts: Restarts, *, revive: bool) -> None:
        """Runs a unit with these settings from now on; None: runs nothing. The rest is as of `Worker.follow`."""
        with self._changed:
            has_failed = self.life.state in (UnitState.FAILED, UnitState.RESTARTING)
            is_asked = restarts.always != self._restarts.always or (
                has_failed and restarts.failed != self._restarts.failed
            )
            given_up = revive and self.life.state is UnitState.FAILED and self.life.restart_at is None
            self._restarts = restarts
            if wanted != self.wanted or is_asked or given_up:
                self.wanted = wanted
                self._call += 1
                self._changed.notify_all()
            if wanted is not None and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"kafka_pubsub-worker-{self._name}", daemon=True
                )
                self._thread.start()

    def has_ended(self, timeout: float) -> bool:
        """Waits until nothing runs, `timeout` seconds at most; returns whether it is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout)

    # -- on its thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                wanted, call = self.wanted, self._call
                if wanted is None:
                    self._thread, self.life = None, self.life.stopped()
                    self._changed.notify_all()
                    return
            self.life = Life(max_restarts=wanted.max_restarts)
            while not self._is_over(call):
                self._run_once(wanted, call)

    def _run_once(self, wanted: UnitSettings, call: int) -> None:
        """Runs a unit until it fails or something else is wanted; after a failure, waits for the next start."""
        try:
            unit = self._make(self._name, wanted)
            try:
                unit.start()
                self._watch(unit, call)
            finally:
                if not unit.stop(self._grace):
                    log.warning(
                        "%s didn't end in %g s; its work is done again elsewhere", self._name, self._grace
                    )
        except (Exception, SystemExit) as error:  # a module that is imported may exit
            text = error.message if isinstance(error, PubSubError) else f"{type(error).__name__}: {error}"
            self.life = self.life.failed(text, traceback.format_exc(), time.monotonic())
            at = self.life.restart_at
            pause = None if at is None else max(0.0, at - time.monotonic())
            later = "it isn't started again" if pause is None else f"it starts again in {pause:.0f} s"
            log.exception("%s has failed, %s", self._name, later)
            if not self._is_over(call, pause):
                self.life = self.life.restarted()

    def _watch(self, unit: Unit, call: int) -> None:
        while not self._is_over(call, LOOK if self.life.state is UnitState.RUNNING else SOON):
            health = unit.health()
            if health.state is ServiceState.STOPPED:
                raise FailedPrecondition(f"{self._name} has ended: {health.error or 'no reason is known'}")
            self.life = self.life.looked(health.ok, health.error, time.monotonic())

    def _is_over(self, call: int, timeout: float | None = 0.0) -> bool:
        """Waits for another call of `follow`, `timeout` seconds at most (None: for ever); returns whether one came."""
        with self._changed:
            return self._changed.wait_for(lambda: self._call != call, timeout)
