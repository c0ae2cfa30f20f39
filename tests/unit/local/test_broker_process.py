"""A broker process that is gone, crashed or silent."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.local import down, find_running, paths, processes, state, status, up


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_PUBSUB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def record(home: Path, *, pid: int, identity: str, ephemeral: bool = False) -> state.BrokerRecord:
    data = home / "data"
    data.mkdir(parents=True)
    made = state.BrokerRecord(pid, identity, 1, str(data), ephemeral, started_at=0.0)
    state.save(paths.state_file(), made)
    return made


def test_a_broker_that_is_gone_counts_as_crashed_until_down(home: Path) -> None:
    made = record(home, pid=os.getpid(), identity="another boot:1")
    made.files.broker_log.write_text("FATAL it was the butler\n")
    found = status()
    assert (found.state, found.pid, found.data_dir) == ("crashed", os.getpid(), home / "data")
    assert found.problem is not None
    assert "ended by itself" in found.problem
    assert found.log_tail == ("FATAL it was the butler",)
    assert find_running() is None
    # The process that has the id now is this very test, which must survive.
    assert down().state == "crashed"
    assert status().state == "stopped"
    assert (home / "data").exists()


def test_what_a_crashed_ephemeral_broker_left_is_deleted(home: Path) -> None:
    record(home, pid=os.getpid(), identity="another boot:1", ephemeral=True)
    down()
    assert not (home / "data").exists()


def test_a_process_that_lives_and_never_answers_is_called_unresponsive(home: Path) -> None:
    own = processes.identity(os.getpid())
    assert own is not None
    made = record(home, pid=os.getpid(), identity=own)
    assert status().state == "unresponsive"
    with pytest.raises(PubSubError, match=r"doesn't answer\. `kafka-pubsub down` ends it") as caught:
        up()
    assert caught.value.code == 6
    state.save(paths.state_file(), dataclasses.replace(made, started_at=4e9))
    assert status().state == "starting"
