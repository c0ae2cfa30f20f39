"""kill -9 of the consumer at full speed, again and again, and a look into all diaries at the end.

The kill comes at a random time after the first delivery, often before the first commit. The parent takes the time
just before the kill, so an ack that still got through counts as later, never as earlier.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import journal
from tests.benchmarks.cluster import published_per_key
from tests.benchmarks.figures import median
from tests.benchmarks.row import Measured, say

__all__ = ["Consumers", "kill_often", "ours"]

# A killed member's partitions are given away when its session ends, 6 s later; this also covers a slow machine.
FIRST_DELIVERY_S = 60.0
# How long after its first delivery a process is killed. The first commit comes after 0.2 s.
LIFETIME_S = (0.05, 1.5)
# A process that wrote nothing in the last 50 ms was not at full speed, and its kill doesn't count.
STILL_RUNNING_S = 0.05
# Nothing written for so long: everything has been delivered.
QUIET_S = 10.0
PATIENCE_S = 300.0
# The promise: commits at most this far behind.
COMMIT_LAG_S = 0.2
# Attempts in which the process was idle are repeated, but not for ever: the backlog may be too small.
IDLE_KILLS = 10


def ours(bootstrap: str, topic: str, group: str, kills: int, messages: int, distinct: int) -> Measured:
    """Kill, start again, let the last process finish, and check."""
    with tempfile.TemporaryDirectory(prefix="kafka-pubsub-bench-") as folder:
        # Room for every start and ack, were all messages delivered twice by a single process.
        wanted = {"bootstrap": bootstrap, "group": group, "records": 4 * messages}
        consumers = Consumers("tests.benchmarks.doomed", wanted, Path(folder), 2)
        counted = kill_often(consumers, kills, LIFETIME_S)
        found = journal.check(consumers.lives(), published_per_key(distinct, messages), COMMIT_LAG_S)
    return {
        "kills": counted,
        "deliveries": found.deliveries,
        "redeliveries": found.redeliveries,
        "lost": found.lost,
        "disordered": found.disordered,
        "excess": found.excess,
        "stale": found.stale,
        "rate": consumers.rate(),
        "note": "; ".join(found.examples),
    }


def kill_often(consumers: Consumers, kills: int, lifetime: tuple[float, float]) -> int:
    """Kills so many at full speed, each so long after its first delivery, lets the last finish; returns how many."""
    chance = random.Random(time.time_ns())
    counted = 0
    for _ in range(kills + IDLE_KILLS):
        say(f"{counted} of {kills} killed")
        counted += consumers.kill_one(chance.uniform(*lifetime))
        if counted == kills:
            break
    say("the last one finishes")
    consumers.finish()
    return counted


class Consumers:
    """The processes, in turn, each with its diary; `per_message`: records of a message that goes well."""

    def __init__(self, program: str, wanted: Mapping[str, object], folder: Path, per_message: int) -> None:
        self._program = program
        self._wanted = wanted
        self._folder = folder
        self._per_message = per_message
        # When each process was killed, oldest first; None: it ended in peace.
        self._killed: list[int | None] = []
        # Deliveries per second of each process in its last instants.
        self._rates: list[float] = []

    def _diary(self, number: int) -> Path:
        return self._folder / f"{number}.diary"

    @contextmanager
    def _process(self) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        diary = self._diary(len(self._killed))
        with (self._folder / "errors").open("wb+") as errors:
            command = [sys.executable, "-m", self._program]
            specification = json.dumps({**self._wanted, "diary": str(diary)})
            process = subprocess.Popen([*command, specification], stderr=errors)
            try:
                self._await_first_delivery(process, diary)
                yield process, diary
            except _Ended as ended:
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip()[-400:]
                raise RuntimeError(f"consumer {len(self._killed)} {ended}: {said}") from None
            finally:
                process.kill()
                process.wait()

    def _await_first_delivery(self, process: subprocess.Popen[bytes], diary: Path) -> None:
        deadline = time.monotonic() + FIRST_DELIVERY_S
        while not journal.written(diary):
            if process.poll() is not None:
                raise _Ended(f"ended with {process.returncode}")
            if time.monotonic() > deadline:
                raise _Ended(f"delivered nothing in {FIRST_DELIVERY_S:.0f} s (is the backlog too small?)")
            time.sleep(0.005)

    def kill_one(self, after: float) -> bool:
        """Start a process and kill it so many seconds after its first delivery; True if it was at full speed then."""
        with self._process() as (process, diary):
            time.sleep(max(0.0, after - STILL_RUNNING_S))
            before, since = journal.written(diary), time.monotonic()
            time.sleep(STILL_RUNNING_S)
            if process.poll() is not None:
                raise _Ended(f"ended by itself with {process.returncode}")
            killed = time.time_ns()
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            seconds = time.monotonic() - since
        self._killed.append(killed)
        # At the kill, not on average: the first tenths of a second are the way up to full speed.
        self._rates.append((journal.written(diary) - before) / self._per_message / seconds)
        return self._rates[-1] > 0

    def finish(self) -> None:
        """The last process: until nothing is left to do, then SIGTERM."""
        deadline = time.monotonic() + PATIENCE_S
        with self._process() as (process, diary):
            count, quiet_since = 0, time.monotonic()
            while time.monotonic() - quiet_since < QUIET_S:
                time.sleep(0.2)
                if time.monotonic() > deadline:  # messages that the process didn't get to aren't lost
                    raise _Ended(f"wasn't through after {PATIENCE_S:.0f} s: {count:,} records in its diary")
                if process.poll() is not None:
                    raise _Ended(f"ended by itself with {process.returncode}")
                if (now := journal.written(diary)) != count:
                    count, quiet_since = now, time.monotonic()
            process.terminate()
            if process.wait(PATIENCE_S):
                raise _Ended(f"ended with {process.returncode} after SIGTERM")
        self._killed.append(None)

    def lives(self) -> Iterator[journal.Life]:
        """The diary of each process."""
        for number, killed in enumerate(self._killed):
            yield journal.Life(journal.read(self._diary(number)), killed)

    def rate(self) -> float:
        """Deliveries per second just before the kill, the median of all kills."""
        return median(self._rates)


class _Ended(Exception):
    """A consumer that didn't do its part."""
