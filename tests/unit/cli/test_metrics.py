"""`metrics`: the lag and the oldest age of each lane."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.conftest import CommandLine


def test_metrics_have_the_lag_and_the_oldest_age_of_each_lane(run: CommandLine) -> None:
    run.json("topic", "create", "jobs", "--partitions", "2", "--priorities", "3", "--transient")
    run.json("sub", "create", "billing", "--topic", "jobs")
    run.json("topic", "create", "plain")
    run.json("sub", "create", "mail", "--topic", "plain")
    run.json("publish", "plain", "x")
    run.json("publish", "jobs", "x", "--priority", "2")
    run.json("publish", "jobs", "y", "--priority", "2")
    run.json("publish", "jobs", "z", "--transient")
    rows: Any = run.json("metrics", "billing")
    assert [(row["lane"], row["priority"], row["class"], row["lag"]) for row in rows] == [
        ("jobs.lane.p2", 2, "durable", 2),
        ("jobs", 1, "durable", 0),
        ("jobs.lane.t1", 1, "transient", 1),
    ]
    ages = [row["oldest_age"] for row in rows]
    assert ages[1] == 0
    assert all(0 <= age < 60 for age in ages)
    lines = run("metrics").stdout.splitlines()
    of = 'subscription="billing",topic="jobs",lane="jobs.lane.t1",priority="1",class="transient"'
    assert f"kafka_pubsub_lag{{{of}}} 1" in lines
    (age,) = (line for line in lines if line.startswith(f"kafka_pubsub_oldest_age_seconds{{{of}}} "))
    assert 0 <= float(age.rpartition(" ")[2]) < 60
    plain = 'subscription="mail",topic="plain",lane="plain",priority="0",class="durable"'
    assert f"kafka_pubsub_lag{{{plain}}} 1" in lines
    assert run.error("metrics", "nix")["code"] == 5


def test_metrics_leave_out_what_cannot_receive_and_say_so(run: CommandLine) -> None:
    run.json("topic", "create", "orders")
    run.json("sub", "create", "billing", "--topic", "orders")
    run.pubsub.delete_topic("orders")
    result = run("metrics")
    assert result.exit_code == 0
    assert "billing can't receive" in result.stderr
    assert "billing" not in result.stdout


def test_the_old_name_goes_on_and_warns(run: CommandLine) -> None:
    run.json("topic", "create", "orders")
    run.json("sub", "create", "billing", "--topic", "orders")
    result = run("subscription", "metrics", "billing")
    assert "`kafka-pubsub metrics` now" in result.stderr
    assert result.stdout == run("metrics", "billing").stdout


def test_names_and_http_exclude_each_other(run: CommandLine) -> None:
    result = run("metrics", "billing", "--http", "0")
    assert result.exit_code == 2
    assert "leave the names out" in result.stderr
