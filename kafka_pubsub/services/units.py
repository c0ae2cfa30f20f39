"""What one process runs, and how it runs it: services, and the handlers of an app.

Theory. A unit is started, asked how it is, drained and stopped. `run_units` does that for several until a signal comes:
first all of them take nothing more, then they share the time that is left for what they have begun.

Rule: a unit that has ended by itself ends the others too, and is the run's error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.services.lifecycle import ServiceState

__all__ = ["StopSignal", "Unit", "UnitHealth", "run_units"]

#: Seconds between two looks how the units are.
LOOK = 1.0


class UnitHealth(Protocol):
    """How a unit is."""

    @property
    def state(self) -> ServiceState:
        """Where it is in its life."""

    @property
    def error(self) -> str:
        """What is wrong; empty: nothing."""

    @property
    def ok(self) -> bool:
        """Whether it does its work, and nothing needs to be looked at."""


class Unit(Protocol):
    """Something that a process runs. `kafka_pubsub.services.lifecycle.Service` is one."""

    name: str

    def start(self) -> object:
        """Begins; raises what makes a beginning impossible."""

    def drain(self) -> None:
        """Takes nothing more, and returns at once."""

    def stop(self, timeout: float = ...) -> bool:
        """Drains, and waits for the end of what was begun; returns False if that takes longer than `timeout`."""

    def health(self) -> UnitHealth:
        """Returns how it is now."""


class StopSignal(Protocol):
    """What asks for the end of a run: `threading.Event` is one."""

    def is_set(self) -> bool:
        """Returns whether the run is to end."""

    def wait(self, timeout: float) -> bool:
        """Waits for that, `timeout` seconds at most, and returns whether it is so."""


def run_units(
    units: Sequence[Unit],
    stop: StopSignal,
    *,
    grace: float,
    watch: Callable[[], object] = lambda: None,
    look: float = LOOK,
) -> list[str]:
    """Runs the units until `stop` is set or one of them ends; returns the names of those that didn't end in time.

    `grace`: the seconds for which all of them together may finish what they have begun. `watch` is called at each look
    (every `look` seconds).
    """
    begun: list[Unit] = []
    late: list[str] = []
    try:
        for unit in units:
            begun.append(unit)
            unit.start()
        while not stop.is_set():
            watch()
            for unit in units:
                health = unit.health()
                if health.state is ServiceState.STOPPED:
                    raise FailedPrecondition(f"{unit.name} has ended: {health.error or 'no reason is known'}")
            stop.wait(look)
    finally:
        end = time.monotonic() + grace
        for unit in begun:
            unit.drain()
        late = [unit.name for unit in begun if not unit.stop(max(0.0, end - time.monotonic()))]
    return late
