"""`subscription` over an in-memory cluster."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.cli.conftest import CommandLine


def test_a_subscription_is_made_listed_described_changed_and_deleted(run: CommandLine) -> None:
    run.json("topic", "create", "orders")
    run.json("topic", "create", "other")
    made: Any = run.json(
        *("subscription", "create", "billing", "--topic", "orders", "--ordering", "--ack-deadline", "1m"),
        *("--min-backoff", "500ms", "--max-backoff", "10s", "--label", "a=b"),
    )
    assert made == {
        "name": "billing",
        "topic": "orders",
        "message_ordering": True,
        "ack_deadline": 60,
        "max_extension": 3600,
        "min_backoff": 0.5,
        "max_backoff": 10,
        "dead_letter_topic": None,
        "max_attempts": None,
        "on_exhausted": None,
        "exactly_once": False,
        "ageing": 5,
        "strict": False,
        "labels": {"a": "b"},
    }
    run.json("sub", "create", "mail", "--topic", "other")
    idle: dict[str, object] = {
        **dict.fromkeys(("backlog", "waiting_retry", "parked", "blocked_keys", "dead_letters", "lag"), 0),
        "oldest_age": None,
        "members": 0,
        "unread_retry": 0,
        "unread_dead_letters": 0,
        "problem": None,
    }
    assert run.json("sub", "list", "--topic", "orders") == [{**made, **idle}]
    assert run.json("sub", "update", "billing", "--max-backoff", "20s") == {**made, "max_backoff": 20}
    idle |= {"lanes": [], "hosts": [], "lag_by_partition": {str(each): 0 for each in range(8)}}
    assert run.json("sub", "describe", "billing") == {**made, "max_backoff": 20, **idle}
    changed = run.json("sub", "update", "billing", "--no-backoff", "--no-ordering")
    assert changed == {**made, "min_backoff": None, "max_backoff": None, "message_ordering": False}
    assert run.json("sub", "delete", "billing", "--yes") == {"deleted": "billing"}
    assert run.json("sub", "list", "--topic", "orders") == []


def test_where_it_begins_is_chosen_and_what_is_passed_over_is_said(run: CommandLine) -> None:
    run.json("topic", "create", "orders")
    for body in ("1", "2", "3"):
        run("publish", "orders", body)
    said = run("sub", "create", "billing", "--topic", "orders")
    assert said.exit_code == 0
    assert "up to 3. To get them, delete it, and create it with --start earliest" in said.stderr
    for start in ("earliest", "1h", "2001-01-01"):
        made = run("sub", "create", f"since-{start}", "--topic", "orders", "--start", start)
        assert (made.exit_code, made.stderr) == (0, "")
    latest = run.json("sub", "create", "none", "--topic", "orders", "--start", "latest")
    assert isinstance(latest, dict)
    assert "passed_over" not in latest
    counted = run.json("sub", "list")
    assert isinstance(counted, list)
    assert {row["name"]: row["backlog"] for row in counted} == {
        "billing": 0,
        "none": 0,
        "since-1h": 3,
        "since-2001-01-01": 3,
        "since-earliest": 3,
    }


@pytest.mark.parametrize(
    ("start", "code", "text"),
    [("yesterday", 2, "is not a time"), ("2999-01-01", 1, "is in the future"), ("", 2, "is not a time")],
)
def test_a_wrong_start_is_refused(run: CommandLine, start: str, code: int, text: str) -> None:
    run.json("topic", "create", "orders")
    error = run.error("sub", "create", "billing", "--topic", "orders", "--start", start)
    assert error["exit_code"] == code
    assert text in str(error["message"])


def test_dead_letters_are_asked_for_changed_and_taken_away(run: CommandLine) -> None:
    for name in ("orders", "dead", "dead2"):
        run.json("topic", "create", name)
    made = run.json(
        *("sub", "create", "billing", "--topic", "orders", "--dead-letter-topic", "dead"),
        *("--max-attempts", "7", "--on-exhausted", "park"),
    )
    assert isinstance(made, dict)
    asked = {"dead_letter_topic": "dead", "max_attempts": 7, "on_exhausted": "park"}
    assert {name: made[name] for name in asked} == asked
    assert run.json("sub", "update", "billing", "--max-attempts", "9") == {**made, "max_attempts": 9}
    changed = run.json("sub", "update", "billing", "--dead-letter-topic", "dead2")
    assert changed == {**made, "max_attempts": 9, "dead_letter_topic": "dead2"}
    gone = run.json("sub", "update", "billing", "--no-dead-letter")
    assert isinstance(gone, dict)
    assert (gone["dead_letter_topic"], gone["max_attempts"], gone["on_exhausted"]) == (None, None, None)


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--max-attempts", "9"], 2, "need a --dead-letter-topic"),
        (
            ["--dead-letter-topic", "dead", "--max-attempts", "0"],
            1,
            "^--max-attempts must be at least 1",
        ),
        (["--dead-letter-topic", "orders"], 1, "the subscription's own topic"),
        (["--dead-letter-topic", "nix"], 1, "`kafka-pubsub topic create nix` makes it"),
        (["--on-exhausted", "drop"], 2, "drop"),
        (
            ["--min-backoff", "10s", "--max-backoff", "5s"],
            1,
            "^--min-backoff 10 s is above --max-backoff 5 s",
        ),
    ],
)
def test_a_policy_that_cannot_be_is_refused(
    run: CommandLine, options: list[str], code: int, text: str
) -> None:
    run.json("topic", "create", "orders")
    run.json("topic", "create", "dead")
    error = run.error("sub", "create", "billing", "--topic", "orders", *options)
    assert error["exit_code"] == code
    assert re.search(text, str(error["message"]))
    assert run.json("sub", "list") == []


def test_a_lost_retry_topic_is_remade_when_somebody_says_so(run: CommandLine) -> None:
    run.json("topic", "create", "orders")
    run.json("sub", "create", "billing", "--topic", "orders")
    run.pubsub._cluster._connected().backend.admin.delete_topic("orders.sub.billing.retry")
    advised = "`kafka-pubsub subscription update billing --remake-retry-topic`"
    assert advised in str(run.error("pull", "billing")["message"])
    run.json("sub", "update", "billing", "--remake-retry-topic")
    assert run("sub", "describe", "billing").exit_code == 0


def test_a_subscription_reports_its_lag_and_what_is_wrong_with_it(run: CommandLine) -> None:
    run.json("topic", "create", "orders")
    run.json("sub", "create", "billing", "--topic", "orders")
    run("publish", "orders", stdin="one\ntwo\n")
    lines = run("sub", "describe", "billing").stdout.splitlines()
    assert ["lag", "2"] in [line.split() for line in lines]
    run.json("topic", "delete", "orders", "--yes")
    detached = run("sub", "describe", "billing")
    assert detached.exit_code == 0
    assert "detached" in detached.stdout
    assert "`kafka-pubsub subscription delete billing`" in detached.stdout


def test_describe_shows_the_lag_of_each_partition_and_where_members_run(run: CommandLine) -> None:
    run.json("topic", "create", "orders", "--partitions", "2")
    run.json("sub", "create", "billing", "--topic", "orders")
    run("publish", "orders", "x", "--key", "k")
    shown = run.json("sub", "describe", "billing")
    assert isinstance(shown, dict)
    assert sorted(shown["lag_by_partition"].values()) == [0, 1]
    assert shown["hosts"] == []
    (partition,) = [number for number, lag in shown["lag_by_partition"].items() if lag]
    assert f"{partition}: 1" in run("sub", "describe", "billing").stdout
