"""The driver's own promises: a burst's error is the round's, who ends by himself is a finding, no process is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.local import processes
from tests.acceptance.support import until
from tests.faults.arena import Arena
from tests.faults.check import histories
from tests.faults.children import ROOT, Children
from tests.faults.faults import Fault, Stage
from tests.faults.plan import ConsumerPlan


def nowhere(slot: int, number: int, path: Path) -> ConsumerPlan:
    """A consumer that can't even begin: its address is none."""
    return ConsumerPlan(
        bootstrap=" ", topic="t", told=str(path.parent), ready=str(path), seed=1, subscription="s"
    )


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[HistoryFile]:
    history = HistoryFile(tmp_path / "driver.jsonl", role="driver", topic="t", subscription="s")
    yield history
    history.close()


@pytest.fixture
def children(tmp_path: Path, driver: HistoryFile) -> Iterator[Children]:
    children = Children(tmp_path, driver, nowhere)
    yield children
    children.close()


def stage(children: Children, driver: HistoryFile, seconds: float) -> Stage:
    return Stage(Arena("127.0.0.1:1"), children, driver, time.monotonic() + seconds)


def test_bursts_of_each_line_go_on_until_the_time_is_over(children: Children, driver: HistoryFile) -> None:
    def first(stage: Stage, rng: random.Random) -> None:
        stage.wait(0.01)

    def second(stage: Stage, rng: random.Random) -> None:
        stage.wait(0.01)

    shown = stage(children, driver, 5)
    Fault("", ((first,), (second,))).run(shown, seed=1)
    assert shown.over
    assert shown.done.count("first") >= 2
    assert shown.done.count("second") >= 2


def test_what_goes_wrong_in_a_burst_ends_the_round(children: Children, driver: HistoryFile) -> None:
    def breaks(stage: Stage, rng: random.Random) -> None:
        raise RuntimeError("the cluster isn't in sync")

    def goes_on(stage: Stage, rng: random.Random) -> None:
        stage.wait(0.01)

    began = time.monotonic()
    with pytest.raises(RuntimeError, match="isn't in sync"):
        Fault("", ((breaks,), (goes_on,))).run(stage(children, driver, 3600), seed=1)
    assert time.monotonic() - began < 60


def test_a_consumer_that_ends_by_itself_is_a_finding_and_is_replaced(
    children: Children, driver: HistoryFile, tmp_path: Path
) -> None:
    children.start(0)
    (first,) = children.pids

    until(lambda: children.findings)
    assert f"consumer {first} ended with code 1" in children.findings[0]
    assert "bootstrap" in children.findings[0]
    assert children.slots == [0]
    assert first not in children.pids
    driver.close()
    assert next(event["of"] for event in histories(tmp_path)["driver"] if event["event"] == "crash") == first


def test_a_frozen_consumer_can_be_killed_and_both_are_reported(
    children: Children, driver: HistoryFile, tmp_path: Path
) -> None:
    children.start(0)
    (pid,) = children.pids
    children.freeze(0)
    children.kill(0)
    assert (children.slots, children.findings, children.deaths) == ([], [], 1)
    driver.close()
    told = [(event["event"], event["of"]) for event in list(histories(tmp_path)["driver"])[1:-1]]
    assert told == [("stop", pid), ("crash", pid)]


DRIVER = """
import os, signal, sys
from pathlib import Path
from kafka_pubsub.local import processes
from kafka_pubsub.history.history import HistoryFile
from tests.faults.children import Children
from tests.faults.test_children_and_faults import nowhere
folder = Path(sys.argv[1])
children = Children(folder, HistoryFile(folder / "driver.jsonl", role="driver", topic="t"), nowhere)
children.start(0)
children.freeze(0)
print(children.pids[0], processes.identity(children.pids[0]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_process_is_left_when_the_driver_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, identity = done.stdout.split()
    until(lambda: not processes.is_alive(int(pid), identity))
