"""`subscription keys` and `release`: keys that are held up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_pubsub import DeadLetterPolicy, Message
from tests.unit.cli.conftest import CommandLine
from tests.unit.cli.test_deadletters import fail, prepare
from tests.unit.dying import PATIENCE, QUICK, deliver, until


@pytest.fixture
def billing(run: CommandLine) -> CommandLine:
    """Three dead letters of two keys: a 1, b 2, a 3."""
    prepare(run, "dead_letter")
    sub = run.pubsub.subscription("billing")
    with sub.pull(fail):
        until(lambda: len(list(sub.dead_letters())) == 3)
    return run


@pytest.fixture
def parked(run: CommandLine) -> CommandLine:
    """Keys a and b are parked, a with a successor."""
    prepare(run, "park")
    sub = run.pubsub.subscription("billing")
    with sub.pull(fail):
        until(lambda: [each.state for each in list(sub.keys())] == ["parked", "parked"])
    return run


def test_parked_keys_are_shown_and_released(parked: CommandLine) -> None:
    keys: Any = parked.json("subscription", "keys", "billing")
    assert [(each["key"], each["state"], each["offset"], each["error"]) for each in keys] == [
        ("a", "parked", 0, "ValueError: bad 0"),
        ("b", "parked", 1, "ValueError: bad 1"),
    ]
    assert keys[0]["next_due"] is None
    assert datetime.fromisoformat(keys[0]["since"]) > datetime.now(UTC) - timedelta(minutes=1)
    result = parked("sub", "keys", "billing")
    assert "its attempts are used up: ValueError: bad 0" in result.stdout
    assert "`kafka-pubsub deadletter release billing`" in result.stderr
    assert parked.json("subscription", "keys", "billing", "--state", "leased") == []
    done = parked.json("deadletter", "release", "billing", "--id", "0:0")
    assert done == {"subscription": "billing", "released": 1, "keys": 1, "skipped": [], "dry_run": False}
    assert [each.data for each in deliver(parked.pubsub.subscription("billing"), 2)] == [b"1", b"3"]
    result = parked("deadletter", "release", "billing", "--drop", "--yes")
    assert result.stdout == "Dropped 1 parked message of 1 key (billing)\n"
    assert "as soon as one does" in result.stderr


def test_nothing_held_up_is_said(billing: CommandLine) -> None:
    result = billing("subscription", "keys", "billing")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No key of billing is held up.\n")


def test_what_is_parked_in_a_lane_is_released_by_the_id_that_keys_shows(run: CommandLine) -> None:
    run.pubsub.create_topic("jobs", partitions=1, priorities=10)
    run.pubsub.create_topic("dead", partitions=1)
    policy = DeadLetterPolicy(topic="dead", on_exhausted="park")
    sub = run.pubsub.create_subscription(
        "mail", "jobs", message_ordering=True, retry=QUICK, dead_letter=policy
    )
    for priority in (9, 4):
        publish = run.pubsub.topic("jobs").publish
        publish(b"x", priority=priority, ordering_key=f"of-{priority}").result(PATIENCE)
    with sub.pull(fail):
        until(lambda: [each.state for each in list(sub.keys())] == ["parked", "parked"])
    keys: Any = run.json("subscription", "keys", "mail")
    places = {each["key"]: (each["topic"], each["partition"], each["offset"]) for each in keys}
    assert places == {"of-4": ("jobs", 0, 0), "of-9": ("jobs.lane.p9", 0, 0)}
    shown = run("subscription", "keys", "mail").stdout.splitlines()
    assert [line.split()[-1] for line in shown[1:]] == ["jobs:0:0", "jobs.lane.p9:0:0"]
    error = run.error("deadletter", "show", "mail", "jobs.lane.p9:0:0")
    assert "message jobs.lane.p9:0:0 is no dead letter, it is parked: see" in str(error["message"])
    said = run("deadletter", "replay", "mail", "--id", "jobs.lane.p9:0:0")
    assert said.stdout == "No dead letter to replay (mail)\n"
    assert "Message jobs.lane.p9:0:0 is no dead letter, it is parked: see `kafka-pubsub sub" in said.stderr
    dropped: Any = run.json("deadletter", "release", "mail", "--id", "jobs.lane.p9:0:0", "--drop", "--yes")
    assert dropped["dropped"] == 1
    assert run.json("deadletter", "release", "mail", "--id", "0:0", "--dry-run")
    with sub.pull(Message.ack):
        until(lambda: [each.ordering_key for each in list(sub.keys())] == ["of-4"])
        until(lambda: [each["key"] for each in run.json("deadletter", "list", "mail")] == ["of-9"])  # type: ignore[attr-defined]
    (dead,) = list(sub.dead_letters())
    assert (dead.topic, dead.ordering_key) == ("jobs.lane.p9", "of-9")
    said = run("deadletter", "release", "mail", "--id", "jobs.lane.p9:0:0")
    assert (
        "Message jobs.lane.p9:0:0 isn't parked, it is a dead letter: `kafka-pubsub deadletter" in said.stderr
    )
