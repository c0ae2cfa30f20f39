"""The process of the services beside the broker that `up` starts, without a broker."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from kafka_pubsub.local import down, paths, processes, service_process, state, status


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_PUBSUB_HOME", str(tmp_path / "home"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def started(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Services beside a broker that has crashed: nothing listens on port 1."""
    monkeypatch.setenv("KAFKA_PUBSUB_CREATE", "false")
    pid, known = service_process.start_services("127.0.0.1:1", home)
    crashed = state.BrokerRecord(os.getpid(), "another boot:1", 1, str(home), False, 0.0, pid, known)
    state.save(paths.state_file(), crashed)
    return pid, known


def test_down_ends_the_services_of_a_broker_that_has_crashed(started: tuple[int, str]) -> None:
    assert processes.is_alive(*started)
    assert status().services is True
    down()
    assert not processes.is_alive(*started)
    assert status().services is None


def test_services_that_have_ended_are_reported(started: tuple[int, str]) -> None:
    service_process.end_services(*started)
    assert status().services is False


def test_a_record_without_services_has_none(home: Path) -> None:
    record = state.BrokerRecord(os.getpid(), "another boot:1", 1, str(home), False, 0.0)
    state.save(paths.state_file(), dataclasses.replace(record))
    assert status().services is None


def test_they_are_a_command_of_this_installation(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    service_process.end_services(*service_process.start_services("127.0.0.1:1", home))
    assert service_process.services_log(home).exists()
