"""Shared by the rows of the scenario `start`: laps, and topics that another process makes.

A row must not have imported or connected anything before its first lap, so nothing here imports a client.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.benchmarks.harness import parse_report, run_process
from tests.benchmarks.row import Measured

__all__ = ["KEY", "PARTITIONS", "PATIENCE_S", "Laps", "made_apart", "time_commands", "waited"]

PATIENCE_S = 60.0
PARTITIONS = 8
KEY = "key"


class Laps:
    """Times a step twice: the first time in its process, and again."""

    def __init__(self) -> None:
        self._ms: list[float] = []

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Times the block."""
        started = time.perf_counter()
        yield
        self._ms.append((time.perf_counter() - started) * 1000)

    def report(self) -> Measured:
        """Returns the row's answer."""
        first, again = self._ms
        return {"first_ms": first, "again_ms": again}


def made_apart(client: str, bootstrap: str, name: str, partitions: int = PARTITIONS) -> str:
    """Makes a topic with a message, in a process of its own; returns its name. `client`: `start` or `start_bare`.

    Made by `start`, with a subscription of the same name, which was there before the message.
    """
    parameters = {"bootstrap": bootstrap, "name": name, "partitions": partitions}
    call = f"tests.benchmarks.rows.{client}:make"
    run = parse_report("make", 0, *run_process({"call": call, "parameters": parameters}))
    if not run.worked:
        raise RuntimeError(f"making topic {name}: {run.error or run.missing}")
    return name


def time_commands(arguments: Sequence[str]) -> Measured:
    """Runs Python with these arguments twice, in a process each."""
    laps = Laps()
    for _ in range(2):
        with laps.lap():
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=PATIENCE_S)
    return laps.report()


def waited(event: threading.Event) -> None:
    """Waits for an event, and raises if the event doesn't come."""
    if not event.wait(PATIENCE_S):
        raise RuntimeError(f"no message came within {PATIENCE_S:.0f} s")
