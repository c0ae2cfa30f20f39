"""No delay router runs while messages wait: `publish --delay`, `delay list` and `status` say so."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafka_pubsub.app import PubSub
from kafka_pubsub.cli import routers
from kafka_pubsub.errors import PermissionDenied, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from tests.unit.cli.conftest import CommandLine

MISSING = "No delay router is running: `kafka-pubsub service router` starts one."


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
