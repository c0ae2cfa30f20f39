"""The process of the services beside the broker that `up` starts, without a broker."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local import commands, down, paths, processes, service_process, state, status, up


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


@pytest.fixture
def beside_a_broker(
    started: tuple[int, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, str]]:
    """The services, and a broker that seems to run: this very process, whose port answers."""
    known = processes.identity(os.getpid())
    assert known is not None
    state.save(paths.state_file(), state.BrokerRecord(os.getpid(), known, 1, str(home), False, 0.0, *started))
    monkeypatch.setattr(commands, "broker_answers", lambda port, cluster_id: True)
    yield started
    record = state.load(paths.state_file())
    assert record is not None
    service_process.end_services(record.services_pid, record.services_identity)


def test_up_starts_services_that_have_ended_and_keeps_what_they_said(
    beside_a_broker: tuple[int, str], home: Path
) -> None:
    service_process.end_services(*beside_a_broker)
    service_process.services_log(home).write_text("why they ended\n")
    said: list[str] = []
    assert up(exist_ok=True, on_progress=said.append).services is True
    assert said == ["Starting the delay router and the sequencer beside Kafka on 127.0.0.1:1"]
    assert status().services is True
    assert service_process.services_log(home).read_text().startswith("why they ended\n")


def test_up_leaves_services_alone_that_run(beside_a_broker: tuple[int, str]) -> None:
    before = state.load(paths.state_file())
    assert up(exist_ok=True).services is True
    assert state.load(paths.state_file()) == before


def test_up_without_services_starts_none(beside_a_broker: tuple[int, str]) -> None:
    service_process.end_services(*beside_a_broker)
    assert up(exist_ok=True, services=False).services is False


def test_a_record_without_services_has_none(home: Path) -> None:
    record = state.BrokerRecord(os.getpid(), "another boot:1", 1, str(home), False, 0.0)
    state.save(paths.state_file(), dataclasses.replace(record))
    assert status().services is None


def test_they_are_a_command_of_this_installation(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    service_process.end_services(*service_process.start_services("127.0.0.1:1", home))
    assert service_process.services_log(home).exists()
