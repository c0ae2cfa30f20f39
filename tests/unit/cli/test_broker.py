"""`status`: the embedded Kafka, and whether messages wait for a router."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub.app import PubSub
from kafka_pubsub.delays.calls import Delays
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import DeadlineExceeded, PermissionDenied
from kafka_pubsub.local import Status
from kafka_pubsub.log.memory import MemoryBackend
from tests.unit.cli.conftest import CommandLine
from tests.unit.cli.test_routers import MISSING, Cluster


def test_status_says_that_messages_wait_and_no_router_runs(run: CommandLine) -> None:
    quiet = run("status")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    assert "running" in quiet.stdout
    run.pubsub.create_topic("orders").publish(b"x", delay=600).result(10)
    result = run("status")
    assert (result.exit_code, result.stderr) == (0, f"Delayed messages wait. {MISSING}\n")
    answer = run.json("status")
    assert isinstance(answer, dict)
    assert (answer["routers"], answer["delayed_messages_wait"]) == (0, True)
    with DelayRouter(run.pubsub) as router:
        router.wait_until_running()
        assert run("status").stderr == ""
        answer = run.json("status")
        assert isinstance(answer, dict)
        assert (answer["routers"], answer["delayed_messages_wait"]) == (1, None)


def test_status_says_that_no_router_runs_if_what_waits_is_not_told_in_time(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: PubSub) -> Iterator[object]:
        raise DeadlineExceeded("the cluster is slow")

    monkeypatch.setattr(Delays, "waiting", refuse)
    result = run("status")
    assert (result.exit_code, result.stderr) == (0, f"Whether delayed messages wait isn't known. {MISSING}\n")


def test_status_of_a_crashed_kafka_names_the_option_of_up(run: CommandLine) -> None:
    run.status = Status(
        "crashed", problem="The broker ran out of memory. Give it more (heap_mb=), or free some"
    )
    assert "Give it more (--heap-mb), or free some" in run("status").stdout
    assert "Give it more (--heap-mb), or free some" in run("status", "--json").stdout


def test_status_asks_only_a_kafka_that_runs(run: CommandLine) -> None:
    run.pubsub.create_topic("orders").publish(b"x", delay=600).result(10)
    run.status = Status("stopped")
    result = run("status")
    assert (result.exit_code, result.stderr) == (1, "")
    assert "Kafka isn't running" in result.stdout
    run.status = Status("unresponsive", "memory")
    assert (run("status").exit_code, run("status").stderr) == (1, "")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def asked(cluster: Cluster) -> Iterator[CommandLine]:
    with PubSub.in_memory(MemoryBackend(faults=cluster), services=False) as pubsub:
        pubsub.create_topic("orders").publish(b"x", delay=600).result(10)
        yield CommandLine(pubsub, shares=True)


def test_status_of_a_cluster_that_refuses_the_question(asked: CommandLine, cluster: Cluster) -> None:
    cluster.error = PermissionDenied("no right to describe the group")
    answer = asked.json("status")
    assert isinstance(answer, dict)
    assert (answer["routers"], answer["delayed_messages_wait"]) == (None, None)
    assert asked("status").stderr == ""
