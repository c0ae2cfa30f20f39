"""`delay list`, `show` and `cancel`, over an in-memory cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from kafka_pubsub.cli.delay import _histogram
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.delays.waiting import WaitingMessage
from tests.unit.cli.conftest import CommandLine


def publish(run: CommandLine, topic: str, *options: str) -> str:
    run.pubsub.create_topic(topic, exist_ok=True)
    answer = run.json("publish", topic, "hello", *options)
    assert isinstance(answer, dict)
    return str(answer["message_id"])


def test_what_waits_is_counted_by_topic_tier_and_time(run: CommandLine) -> None:
    assert "Nothing waits." in run("delay", "list").stderr
    publish(run, "orders", "--delay", "10m")
    publish(run, "orders", "--deliver-at", "2033-01-01T00:00Z")
    publish(run, "bills", "--delay", "10m")
    result = run("delay", "list")
    assert result.exit_code == 0
    assert "No delay router is running" in result.stderr
    counts = json.loads(run("delay", "list", "--json").stdout)
    assert [(each["topic"], each["waiting"]) for each in counts["topics"]] == [("bills", 1), ("orders", 2)]
    assert counts["tiers"] == [{"tier": "came in", "waiting": 3, "bytes": 15}]
    assert counts["routers"] == 0
    listed = json.loads(run("delay", "list", "--topic", "orders", "--messages", "--json").stdout)
    soon, later = (each["due"] for each in listed)
    assert soon is not None, "its delay counts from the moment of storing"
    assert later == "2033-01-01T00:00:00.000+00:00"


def test_one_message_is_shown(run: CommandLine) -> None:
    message_id = publish(run, "orders", "--delay", "10m", "--key", "k")
    result = run("delay", "show", message_id)
    assert result.exit_code == 0
    assert "hello" in result.stdout
    assert run.error("delay", "show", "_kafka_pubsub.delay.in:0:999")["exit_code"] == 1
    assert run.error("delay", "show", "orders")["exit_code"] == 1


def test_a_message_is_cancelled(run: CommandLine) -> None:
    with DelayRouter(run.pubsub):
        message_id = publish(run, "orders", "--delay", "10m")
        assert f"Cancelled {message_id}" in run("delay", "cancel", message_id).stdout
        again = run("delay", "show", message_id)
    assert again.exit_code == 1
    assert "it may have been delivered or cancelled" in again.stderr
    assert "doesn't wait any more" in run("delay", "cancel", "_kafka_pubsub.delay.in:0:999").stderr


def test_the_histogram_has_a_bar_for_each_span() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    found = [
        WaitingMessage("i", "orders", None, now + timedelta(seconds=left), 3, 1)
        for left in (-1, 5, 6, 7, 8, 3000, 400 * 86400)
    ]
    lines = _histogram(found, now)
    assert [line.split()[-1] for line in lines] == ["1", "0", "4", "0", "0", "1", "0", "0", "0", "0", "1"]
    assert lines[0].startswith("overdue")
    assert lines[2].count("█") == 40
    assert lines[-1].startswith("later")
