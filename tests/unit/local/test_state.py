"""The record of the running broker: whole or absent, and never about somebody else's process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_pubsub.local import processes, state


def record_of(pid: int, identity: str) -> state.BrokerRecord:
    return state.BrokerRecord(pid, identity, 9092, "/nowhere", ephemeral=False, started_at=1.5)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "broker.json"
    record = record_of(7, "boot:1")
    state.save(path, record_of(6, "boot:0"))
    state.save(path, record)
    assert state.load(path) == record
    assert [file.name for file in path.parent.iterdir()] == ["broker.json"]
    state.forget(path)
    state.forget(path)
    assert state.load(path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "pid": 2, "more": 3}'])
def test_what_is_no_record_counts_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broker.json"
    path.write_text(text)
    assert state.load(path) is None


def test_a_record_of_another_format_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "broker.json"
    state.save(path, record_of(7, "boot:1"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    assert state.load(path) is None


def test_a_reused_process_id_doesnt_pass_for_the_broker() -> None:
    own = processes.identity(os.getpid())
    assert own is not None
    mine = record_of(os.getpid(), own)
    assert mine.alive
    assert not dataclasses.replace(mine, identity=own + "0").alive


def test_an_ended_process_is_dead_even_before_it_was_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    known = processes.identity(child.pid)
    assert known is not None
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    child.stdout.read()  # returns when the child's end of the pipe is gone
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.identity(child.pid) is None
    assert not processes.is_alive(child.pid, known)
    child.stdout.close()
    child.returncode = 0  # is_alive() took the corpse away


def test_end_stops_a_process_that_refuses_to_stop() -> None:
    stubborn = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        known = processes.identity(child.pid)
        assert known is not None
        processes.end(child.pid, known, timeout_s=0.05)
        assert not processes.is_alive(child.pid, known)
        child.returncode = -9  # is_alive() took the corpse away


def test_end_leaves_a_stranger_with_the_same_id_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        processes.end(child.pid, "another boot:1", timeout_s=0.05)
        assert child.poll() is None
        child.communicate(b"\n")
        assert child.returncode == 0
