"""The unfinished messages of subscriptions, by `subscription list`, `describe` and `metrics`."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pubsub import DeadLetterPolicy, Message, PermissionDenied, PubSub, PubSubError, RetryPolicy
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.faults import FaultPlan
from tests.support import until
from tests.unit.cli.conftest import CommandLine
from tests.unit.dying import PATIENCE, QUICK


@pytest.fixture
def parked(run: CommandLine) -> CommandLine:
    """A parked message with a message behind it, and a message that was acked after both."""
    for name in ("orders", "dead"):
        run.pubsub.create_topic(name, partitions=1)
    policy = DeadLetterPolicy(topic="dead", max_attempts=5, on_exhausted="park")
    sub = run.pubsub.create_subscription(
        "billing", "orders", message_ordering=True, retry=QUICK, dead_letter=policy
    )
    topic = run.pubsub.topic("orders")
    topic.publish(b"1", ordering_key="bad").result(PATIENCE)

    def handle(message: Message) -> None:
        message.nack() if message.ordering_key == "bad" else message.ack()

    with sub.pull(handle):
        until(lambda: sub.state().parked)
        for key in ("bad", "good"):
            topic.publish(b"2", ordering_key=key).result(PATIENCE)
        until(lambda: sub.state().backlog == 2)
    return run


FIGURES = {"backlog": 2, "waiting_retry": 0, "parked": 1, "blocked_keys": 1, "dead_letters": 0, "lag": 2}


def chosen(row: Any) -> dict[str, object]:
    assert 0 <= row["oldest_age"] < PATIENCE
    return {name: row[name] for name in FIGURES}


def test_list_describe_and_metrics_have_the_same_figures(parked: CommandLine) -> None:
    listed: Any = parked.json("subscription", "list")
    described: Any = parked.json("subscription", "describe", "billing")
    metrics: Any = parked.json("subscription", "metrics")
    assert [chosen(row) for row in (*listed, described, *metrics)] == [FIGURES] * 3
    assert (listed[0]["members"], listed[0]["problem"]) == (0, None)


def test_people_read_them_in_columns_and_lines(parked: CommandLine) -> None:
    header, row = parked("subscription", "list").stdout.splitlines()
    titles = "name topic backlog oldest age waiting retry parked blocked keys dead letters lag members"
    assert header.split() == titles.split()
    assert row.split()[:3] == ["billing", "orders", "2"]
    assert row.split()[3].endswith("s"), "an age in one unit"
    assert row.split()[4:] == ["0", "1", "1", "0", "2", "0"]
    lines = [line.split() for line in parked("subscription", "describe", "billing").stdout.splitlines()]
    assert ["backlog", "2"] in lines
    assert ["parked", "1"] in lines
    assert not any("unread" in line for line in lines)


def test_metrics_are_gauges_with_a_line_for_each_figure(parked: CommandLine) -> None:
    lines = parked("subscription", "metrics").stdout.splitlines()
    of = '{subscription="billing",topic="orders",lane="orders",priority="0",class="durable"}'
    for name, figure in FIGURES.items():
        assert f"kafka_pubsub_{name}{of} {figure}" in lines
        assert f"# TYPE kafka_pubsub_{name} gauge" in lines
    assert sum(line.startswith(f"kafka_pubsub_oldest_age_seconds{of} ") for line in lines) == 1


def test_what_was_not_read_makes_a_figure_a_lower_bound(parked: CommandLine) -> None:
    row = parked("subscription", "list", "--limit", "0").stdout.splitlines()[1].split()
    assert row[5:8] == ["0+", "0+", "0"]
    listed: Any = parked.json("subscription", "list", "--limit", "0")
    (one,) = listed
    assert one["unread_retry"] == one["waiting_retry"] == one["backlog"] - 1 > 0, "it counts as waiting"
    assert (one["parked"], one["blocked_keys"], one["unread_dead_letters"]) == (0, 0, 0)


def test_a_lane_shows_its_backlog(run: CommandLine) -> None:
    run.json("topic", "create", "jobs", "--partitions", "1", "--priorities", "3")
    run.json("sub", "create", "billing", "--topic", "jobs", "--min-backoff", "10m", "--max-backoff", "10m")
    run.json("publish", "jobs", "x", "--priority", "2")
    sub = run.pubsub.subscription("billing")
    with sub.pull(Message.nack):
        until(lambda: sub.state().waiting_retry)
    described: Any = run.json("sub", "describe", "billing")
    lanes = {
        each["topic"]: (each["backlog"], each["waiting_retry"], each["lag"]) for each in described["lanes"]
    }
    assert lanes == {"jobs.lane.p2": (1, 1, 0), "jobs": (0, 0, 0)}
    shown = run("sub", "describe", "billing").stdout
    assert "jobs.lane.p2: 1, the oldest for " in shown
    assert "jobs: 0\n" in shown


def test_a_subscription_that_cannot_be_read_hides_no_other(run: CommandLine) -> None:
    for name in ("gone", "orders"):
        run.json("topic", "create", name)
        run.json("sub", "create", f"of-{name}", "--topic", name)
    run.json("publish", "orders", "x")
    run.json("topic", "delete", "gone", "--yes")
    listed: Any = run.json("subscription", "list")
    gone, there = listed
    assert (gone["name"], gone["backlog"], there["backlog"]) == ("of-gone", None, 1)
    assert "detached" in gone["problem"]
    shown = run("subscription", "list")
    assert "of-gone: " in shown.stderr
    assert "detached" in shown.stderr


def test_a_group_that_may_not_be_read_is_a_problem_and_no_failure(run: CommandLine) -> None:
    class Denied(FaultPlan):
        def request(self, operation: str, name: str) -> PubSubError | None:
            return PermissionDenied("group 'billing': no right") if operation == "group_positions" else None

    backend = MemoryBackend()
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders")
        ps.create_subscription("billing", "orders", retry=RetryPolicy())
        with PubSub.in_memory(MemoryBackend(cluster=backend.cluster, faults=Denied())) as other:
            listed: Any = CommandLine(other, shares=True).json("subscription", "list")
    (row,) = listed
    assert (row["name"], row["lag"], row["problem"]) == ("billing", None, "group 'billing': no right")
