"""Ctrl-C ends a parallel run of this suite in good order: no traceback is shown, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import until

ROOT = Path(__file__).parents[2]
#: Tests with open streams on the run's broker, and tests that start processes.
SOME = ["tests/acceptance/test_leases.py", "tests/acceptance/test_processes.py", "tests/unit/lanes"]
MARK = "KAFKA_PUBSUB_INTERRUPTED_RUN"


def started_with(mark: str) -> list[str]:
    """The command lines of the processes whose environment has this mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


class Run:
    """A parallel run, and its output so far."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self._said = folder / "said"
        self._collecting = folder / "collecting"
        first = folder / "test_first.py"
        first.write_text(f"open({str(self._collecting)!r}, 'w').close()\ndef test_it(): pass\n")
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--color=no"]
        with self._said.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, str(first), *SOME],
                cwd=ROOT,
                env={**ours, MARK: self.mark},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def collects(self) -> bool:
        return self._collecting.exists()

    def passed(self, tests: int) -> bool:
        _, _, results = self.said.partition("workers [")
        return results.partition("\n")[2].count(".") >= tests


MOMENTS: dict[str, Callable[[Run], bool]] = {
    "while it collects": Run.collects,
    "at the first result": lambda run: run.passed(1),
    "in the middle": lambda run: run.passed(20),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_shows_no_traceback_and_leaves_no_process(moment: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    try:
        until(lambda: MOMENTS[moment](run), moment, 200)
        assert run.process.poll() is None, run.said
        # As a terminal does: to all processes in front.
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.process.wait(60) == pytest.ExitCode.INTERRUPTED, run.said
        until(lambda: not started_with(run.mark), "the end of all processes")
    finally:
        run.process.kill()
    assert "Traceback" not in run.said, run.said
    assert "KeyboardInterrupt" in run.said
