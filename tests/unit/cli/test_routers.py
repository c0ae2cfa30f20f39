"""No delay router runs while messages wait: `publish --delay`, `delay list` and `status` say it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafka_pubsub.app import PubSub
from kafka_pubsub.cli import routers
from kafka_pubsub.delays.calls import Delays
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import DeadlineExceeded, PermissionDenied, PubSubError
from kafka_pubsub.local import Status
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from tests.unit.cli.conftest import CommandLine

MISSING = "No delay router is running: `kafka-pubsub service router` starts one."


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


class Cluster(FaultPlan):
    """Answers no question about the routers' group: `error` at once, or nothing while `silent` isn't set."""

    def __init__(self) -> None:
        self.error: PubSubError | None = None
        self.silence: threading.Event | None = None

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation != "group_members":
            return None
        if self.silence is not None:
            self.silence.wait(30)
        return self.error


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def asked(cluster: Cluster) -> Iterator[CommandLine]:
    with PubSub.in_memory(MemoryBackend(faults=cluster), services=False) as pubsub:
        pubsub.create_topic("orders").publish(b"x", delay=600).result(10)
        yield CommandLine(pubsub, shares=True)


@pytest.mark.parametrize("command", [("publish", "orders", "x", "--delay", "10m"), ("delay", "list")])
def test_a_cluster_that_refuses_the_question_fails_no_command(
    asked: CommandLine, cluster: Cluster, command: tuple[str, ...]
) -> None:
    assert MISSING in asked(*command).stderr
    cluster.error = PermissionDenied("no right to describe the group")
    result = asked(*command)
    assert result.exit_code == 0, result.output
    assert "Whether a delay router is running isn't known: no right to describe the group" in result.stderr
    assert MISSING not in result.stderr
    assert asked(*command, "--json").exit_code == 0


def test_status_of_a_cluster_that_refuses_the_question(asked: CommandLine, cluster: Cluster) -> None:
    cluster.error = PermissionDenied("no right to describe the group")
    answer = asked.json("status")
    assert isinstance(answer, dict)
    assert (answer["routers"], answer["delayed_messages_wait"]) == (None, None)
    assert asked("status").stderr == ""


@pytest.mark.parametrize(
    "command", [("publish", "orders", "x", "--delay", "10m"), ("delay", "list"), ("status",)]
)
def test_a_cluster_that_is_silent_holds_up_no_command(
    asked: CommandLine, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(routers, "PATIENCE", 0.05)
    cluster.silence = threading.Event()
    try:
        result = asked(*command)
    finally:
        cluster.silence.set()
    assert result.exit_code == 0, result.output
    assert MISSING not in result.stderr
    if command != ("status",):
        assert "isn't known: the cluster hasn't answered for 0.05 s" in result.stderr


def test_a_list_of_nothing_needs_no_router(run: CommandLine) -> None:
    assert MISSING not in run("delay", "list").stderr
    answer = run.json("delay", "list")
    assert isinstance(answer, dict)
    assert answer["routers"] == 0
