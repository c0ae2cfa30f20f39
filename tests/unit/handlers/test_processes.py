"""The parent of `run`: it starts processes, starts them again, and ends with a wrong declaration."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kafka_pubsub.handlers import processes
from kafka_pubsub.handlers.processes import Parent, Sources
from tests.support import until

ROOT = Path(__file__).parents[3]

#: A stand-in for `kafka_pubsub.handlers.worker` that needs no broker: it obeys the file `orders` beside it.
WORKER = """
import json, os, signal, sys, time
from pathlib import Path
report = int(sys.argv[sys.argv.index("--report") + 1])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
said = Path("orders").read_text().strip() if Path("orders").exists() else ""
if said.startswith("exit"):
    sys.exit(int(said.split()[1]))
if said == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    os.write(report, json.dumps({"state": "running", "ok": said != "sick", "error": ""}).encode() + b"\\n")
    time.sleep(0.02)
"""


class Run:
    """A parent that runs on a thread."""

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        grace: float = 5.0,
        *,
        reload: bool = False,
        figures: Path | None = None,
    ) -> None:
        self.said = list[str]()
        sources = Sources(folder) if reload else None
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        self.parent = Parent(
            "shop",
            workers=workers,
            grace=grace,
            environment=environment,
            reload=sources,
            figures=figures,
            tell=self.said.append,
        )
        self.stop, self.codes = threading.Event(), list[int]()
        self.thread = threading.Thread(target=lambda: self.codes.append(self.parent.run(self.stop)))
        self.thread.start()

    def pids(self) -> list[int]:
        """The processes that report that all is well."""
        workers = self.parent.report().details["workers"]
        assert isinstance(workers, list)
        return [row["pid"] for row in workers if row["ok"]]

    def end(self) -> int:
        self.stop.set()
        self.thread.join(60)
        return self.codes[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the stand-in, in which the parent runs."""
    package = tmp_path / "kafka_pubsub" / "handlers"
    package.mkdir(parents=True)
    for each in (package, package.parent):
        (each / "__init__.py").write_text("")
    (package / "worker.py").write_text(WORKER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "PAUSE", 0.05)
    monkeypatch.setattr(processes, "LOOK_AT_SOURCES", 0.05)
    monkeypatch.setattr(processes, "SLACK", 0.2)
    return tmp_path


def test_processes_run_until_they_are_told_to_stop(folder: Path) -> None:
    run = Run(folder)
    until(lambda: len(run.pids()) == 2)
    assert run.parent.report().ready
    pids = run.pids()
    assert run.end() == 0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_dies_is_started_again(folder: Path) -> None:
    run = Run(folder)
    until(lambda: len(run.pids()) == 2)
    first, _ = run.pids()
    os.kill(first, signal.SIGKILL)
    until(lambda: len(run.pids()) == 2 and first not in run.pids())
    assert any("ended with signal 9; another one starts in 0.05 s" in text for text in run.said)
    assert run.end() == 0


def test_the_first_process_and_its_successor_ask_kafka_and_no_other(folder: Path) -> None:
    run = Run(folder, 3, figures=folder)

    def asking() -> list[int]:
        return [pid for pid in run.pids() if b"--view" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    until(lambda: len(run.pids()) == 3)
    first = run.pids()[0]
    assert asking() == [first]
    os.kill(first, signal.SIGKILL)
    until(lambda: len(run.pids()) == 3 and first not in run.pids())
    assert asking() == run.pids()[:1]
    assert run.end() == 0


def test_pauses_grow_while_a_process_keeps_failing(folder: Path) -> None:
    (folder / "orders").write_text("exit 1")
    run = Run(folder, 1)
    until(lambda: sum("exit code 1" in text for text in run.said) >= 3)
    pauses = [text.split("starts in ")[1] for text in run.said if "starts in" in text]
    assert pauses[:3] == ["0.05 s", "0.1 s", "0.2 s"]
    assert not run.parent.report().ready
    assert run.end() == 0


def test_after_any_number_of_failures_the_pause_is_the_longest() -> None:
    said = list[str]()
    parent = Parent("shop", workers=1, grace=1.0, environment={}, tell=said.append)
    # More failures than a float has powers of two.
    for _ in range(1100):
        parent._ended(parent._places[0], 1, 0.0)
    assert said[-1] == "process 1 ended with exit code 1; another one starts in 30 s"


def test_a_process_that_cannot_be_made_is_tried_again_and_the_others_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(folder)
    until(lambda: len(run.pids()) == 2)
    first, second = run.pids()
    make, refused = subprocess.Popen, list[OSError]()

    def make_or_refuse(*arguments: Any, **options: Any) -> Any:
        if not refused:
            refused.append(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
            raise refused[0]
        return make(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", make_or_refuse)
    os.kill(first, signal.SIGKILL)
    until(lambda: len(run.pids()) == 2 and first not in run.pids(), patience=5.0)
    assert second in run.pids()
    told = "process 1 can't be made: [Errno 11] Resource temporarily unavailable; another one starts in 0.1 s"
    assert told in run.said
    assert run.end() == 0


def test_a_wrong_declaration_ends_the_run_with_2(folder: Path) -> None:
    (folder / "orders").write_text("exit 2")
    run = Run(folder)
    run.thread.join(60)
    assert run.codes == [2]


def test_one_that_is_not_well_is_alive_and_not_ready(folder: Path) -> None:
    (folder / "orders").write_text("sick")
    run = Run(folder, 1)
    until(lambda: any("started" in text for text in run.said))
    report = run.parent.report()
    assert (report.alive, report.ready) == (True, False)
    run.end()


def test_one_that_goes_on_after_its_grace_is_killed(folder: Path) -> None:
    (folder / "orders").write_text("deaf")
    run = Run(folder, 1, grace=0.1)
    until(lambda: len(run.pids()) == 1)
    assert run.end() == 0
    assert any("is killed" in text for text in run.said)


def test_a_change_of_the_sources_starts_all_anew_also_after_a_wrong_declaration(folder: Path) -> None:
    run = Run(folder, 1, reload=True)
    until(lambda: len(run.pids()) == 1)
    before = run.pids()
    (folder / "orders").write_text("exit 2")
    (folder / "shop.py").write_text("x = 1")
    until(lambda: "waiting for a change of the sources" in run.said)
    (folder / "orders").write_text("")
    os.utime(folder / "shop.py", (1, 1))
    until(lambda: len(run.pids()) == 1 and run.pids() != before)
    assert run.end() == 0


def test_sources_are_python_files_outside_of_environments(tmp_path: Path) -> None:
    for folder in ("shop", ".git", "__pycache__", "venv"):
        (tmp_path / folder).mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    sources = Sources(tmp_path)
    for folder in (".git", "__pycache__", "venv"):
        (tmp_path / folder / "a.py").write_text("")
    (tmp_path / "shop" / "notes.txt").write_text("")
    assert sources.changed() == ""
    (tmp_path / "shop" / "a.py").write_text("")
    assert sources.changed() == str(tmp_path / "shop" / "a.py")
    assert sources.changed() == ""
    (tmp_path / "shop" / "a.py").unlink()
    assert sources.changed() == str(tmp_path / "shop" / "a.py")


def test_a_process_that_does_not_report_is_stuck(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(folder, 1)
    until(lambda: len(run.pids()) == 1)
    os.kill(run.pids()[0], signal.SIGSTOP)
    monkeypatch.setattr(processes, "STUCK", 0.0)
    time.sleep(0.1)
    report = run.parent.report()
    assert (report.alive, report.ready) == (False, False)
    monkeypatch.setattr(processes, "STUCK", 30.0)
    os.kill(run.pids()[0], signal.SIGCONT)
    run.end()
