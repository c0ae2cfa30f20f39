"""The parent of `kafka-pubsub run`: keeps a number of processes running that each run the app.

Rules
1. The parent imports neither the app nor a client of Kafka: it is small, and nothing of the app can break it.
2. The first process makes what is missing on the cluster; the others start when it receives.
3. A process that ends is started again after a pause that grows up to `LONGEST_PAUSE`; one that ran for `STEADY`
   seconds begins anew. One that ends with 2 (the app is declared wrongly) ends all, or waits for a change with
   `reload`.
4. With `figures`, a directory, each process answers there for its metrics, at a socket (`observe/workers.py`);
   the first also asks Kafka. All have the same subscriptions, so the others would be told the same.
5. A signal is for the parent alone: processes have sessions of their own, and get SIGTERM from it, once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka_pubsub.handlers.health import Report
from kafka_pubsub.services.units import StopSignal

__all__ = ["Parent", "Sources"]

#: Seconds of the first pause and of the longest one, and of a run that ends them.
PAUSE, LONGEST_PAUSE, STEADY = 0.5, 30.0, 60.0
#: Seconds between two looks, and between two looks at the sources.
LOOK, LOOK_AT_SOURCES = 0.05, 0.5
#: Seconds after which a process that doesn't report counts as stuck, and that it may take longer to end than its grace.
STUCK, SLACK = 30.0, 5.0

USAGE = 2


class Sources:
    """The Python files below a directory, whose changes start processes anew."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = self._look()

    def changed(self) -> str:
        """Returns a file that is new, gone or changed since the last call; empty: none is."""
        now = self._look()
        before, self._seen = self._seen, now
        different = {path for path, _ in before.items() ^ now.items()}
        return min(different, default="")

    def _look(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for folder, folders, files in os.walk(self._root):
            folders[:] = [
                each
                for each in folders
                if not each.startswith((".", "__"))
                and each != "node_modules"
                and not os.path.exists(os.path.join(folder, each, "pyvenv.cfg"))
            ]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        found[path] = os.stat(path).st_mtime
                    except OSError:
                        continue  # it is gone since it was listed
        return found


class _Place:
    """The place of one process: the process in it, or when the next one starts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at = 0.0
        self.began_at = 0.0
        self.failures = 0
        self.reports = -1
        self.text = b""
        #: The number of its start among all starts.
        self.start = 0
        #: What it said last, and when; None: it hasn't said anything.
        self.said: Mapping[str, object] | None = None
        self.said_at = 0.0


class Parent:
    """Runs `workers` processes of the app that `target` names, until it is told to stop.

    `grace`: the seconds for which handlers may end. `environment`: that of the processes. `reload`: the sources whose
    changes start all processes anew, or None. `figures`: where processes answer for their metrics, or None. `tell` gets
    what happens, in words.
    """

    def __init__(
        self,
        target: str,
        *,
        workers: int,
        grace: float,
        environment: Mapping[str, str],
        reload: Sources | None = None,
        figures: Path | None = None,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._target = target
        self._grace = grace
        self._environment = environment
        self._reload = reload
        self._figures, self._starts = figures, 0
        self._tell = tell
        self._places = [_Place(number) for number in range(1, workers + 1)]
        self._look_at_sources = 0.0
        #: Whether the processes wait for a change of the sources, because the app is declared wrongly.
        self._waiting = False

    def run(self, stop: StopSignal) -> int:
        """Runs until `stop` is set, and returns 0; or the exit code of a process that makes going on useless."""
        try:
            while not stop.is_set():
                code = self._step()
                if code:
                    return code
                stop.wait(LOOK)
        finally:
            self._end_all()
        return 0

    def sockets(self) -> dict[int, str]:
        """Returns where the processes that run answer for their metrics, by the number of their start."""
        if self._figures is None:
            return {}
        return {each.start: self._socket(each) for each in self._places if each.process is not None}

    def _socket(self, place: _Place) -> str:
        return str((self._figures or Path()) / str(place.start))

    def report(self) -> Report:
        """Returns how the processes are."""
        now = time.monotonic()
        workers: list[dict[str, object]] = []
        for place in self._places:
            process, said = place.process, place.said
            row: dict[str, object] = {
                "pid": None if process is None else process.pid,
                **(said or {"ok": False}),
            }
            # A start may take long: what it waits for is the app's own, and it reports nothing meanwhile.
            row["stuck"] = process is not None and said is not None and now - place.said_at > STUCK
            workers.append(row)
        alive = not any(row["stuck"] for row in workers)
        return Report(alive, alive and all(row["ok"] for row in workers), {"workers": workers})

    # -- one look --------------------------------------------------------------------------------------------

    def _step(self) -> int:
        now = time.monotonic()
        self._watch_sources(now)
        for place in self._places:
            self._read(place, now)
            if place.process is not None and (code := place.process.poll()) is not None:
                if code == USAGE and self._reload is None:
                    return USAGE
                self._ended(place, code, now)
            if place.process is None and now >= place.start_at and self._may_start(place):
                try:
                    self._start(place, now)
                except OSError as error:  # such as too many processes or open files
                    self._forget(place)
                    self._start_later(place, f"can't be made: {error}", now)
        return 0

    def _may_start(self, place: _Place) -> bool:
        first = self._places[0]
        return not self._waiting and (place is first or (first.said or {}).get("state") == "running")

    def _start(self, place: _Place, now: float) -> None:
        place.reports, theirs = os.pipe()
        os.set_blocking(place.reports, False)
        os.set_blocking(theirs, False)
        self._starts += 1
        place.start = self._starts
        command = [sys.executable, "-m", "kafka_pubsub.handlers.worker", self._target]
        if self._figures is not None:
            command += ["--figures", self._socket(place)]
            command += ["--view"] if place is self._places[0] else []
        try:
            place.process = subprocess.Popen(
                [*command, "--grace", str(self._grace), "--report", str(theirs)],
                env=dict(self._environment),
                pass_fds=(theirs,),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        place.began_at, place.said, place.text = now, None, b""
        self._tell(f"process {place.number} started, pid {place.process.pid}")

    def _read(self, place: _Place, now: float) -> None:
        if place.reports < 0:
            return
        try:
            place.text += os.read(place.reports, 65536)
        except OSError:
            return  # nothing new
        *lines, place.text = place.text.split(b"\n")
        if lines:
            before = (place.said or {}).get("ok")
            place.said, place.said_at = json.loads(lines[-1]), now
            if place.said["ok"] and not before:
                self._tell(f"process {place.number} receives")

    def _ended(self, place: _Place, code: int, now: float) -> None:
        self._forget(place)
        if code == USAGE:
            self._waiting = True
            self._tell("waiting for a change of the sources")
            return
        if now - place.began_at >= STEADY:
            place.failures = 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._start_later(place, f"ended with {how}", now)

    def _start_later(self, place: _Place, what: str, now: float) -> None:
        pause = min(LONGEST_PAUSE, PAUSE * 2.0 ** min(place.failures, 10))
        place.failures += 1
        place.start_at = now + pause
        self._tell(f"process {place.number} {what}; another one starts in {pause:g} s")

    def _forget(self, place: _Place) -> None:
        place.process, place.said = None, None
        if place.reports >= 0:
            os.close(place.reports)
            place.reports = -1

    def _watch_sources(self, now: float) -> None:
        if self._reload is None or now < self._look_at_sources:
            return
        self._look_at_sources = now + LOOK_AT_SOURCES
        changed = self._reload.changed()
        if changed:
            self._tell(f"{changed} changed; all processes start anew")
            self._end_all()
            self._waiting = False
            for place in self._places:
                place.start_at, place.failures = 0.0, 0

    def _end_all(self) -> None:
        """Sends SIGTERM to all, waits for their grace, and kills those that go on."""
        running = [place for place in self._places if place.process is not None]
        for place in running:
            assert place.process is not None
            place.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + self._grace + SLACK
        for place in running:
            assert place.process is not None
            try:
                place.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._tell(
                    f"process {place.number} didn't end in time and is killed; its messages are delivered again"
                )
                place.process.kill()
                place.process.wait()
            self._forget(place)
