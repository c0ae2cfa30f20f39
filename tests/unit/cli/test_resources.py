"""`topic` and `subscription` over an in-memory cluster."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import CommandLine


def test_a_topic_is_made_listed_described_changed_and_deleted(run: CommandLine) -> None:
    made = run.json("topic", "create", "orders", "--partitions", "3", "--ordering", "--label", "team=shop")
    assert made == {
        "name": "orders",
        "partitions": 3,
        "replication": 1,
        "message_ordering": True,
        "retention": None,
        "labels": {"team": "shop"},
    }
    assert run.json("topic", "list") == [made]
    assert run.json("topic", "update", "orders", "--retention", "7d") == {**made, "retention": 604_800}
    run.json("subscription", "create", "billing", "--topic", "orders")
    described = run.json("topic", "describe", "orders")
    assert described == {**made, "retention": 604_800, "subscriptions": ["billing"]}
    run.json("topic", "update", "orders", "--default-retention", "--no-ordering")
    assert run.pubsub.topic("orders").options.retention is None
    assert run.pubsub.topic("orders").options.message_ordering is False
    assert run.json("topic", "delete", "orders") == {"deleted": "orders"}
    assert run.json("topic", "list") == []


def test_a_subscription_is_made_listed_described_changed_and_deleted(run: CommandLine) -> None:
    run.json("topic", "create", "orders")
    run.json("topic", "create", "other")
    made = run.json(
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
        "labels": {"a": "b"},
    }
    run.json("sub", "create", "mail", "--topic", "other")
    assert run.json("sub", "list", "--topic", "orders") == [made]
    assert run.json("sub", "update", "billing", "--max-backoff", "20s") == {**made, "max_backoff": 20}
    idle = {"lag": 0, "members": 0, "problem": None}
    assert run.json("sub", "describe", "billing") == {**made, "max_backoff": 20, **idle}
    changed = run.json("sub", "update", "billing", "--no-backoff", "--no-ordering")
    assert changed == {**made, "min_backoff": None, "max_backoff": None, "message_ordering": False}
    assert run.json("sub", "delete", "billing") == {"deleted": "billing"}
    assert run.json("sub", "list", "--topic", "orders") == []


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "text"),
    [
        (["topic", "describe", "nix"], 5, "NotFound", "'nix'"),
        (["topic", "delete", "nix"], 5, "NotFound", "'nix'"),
        (["topic", "create", "a b"], 3, "InvalidArgument", "' '"),
        (["topic", "create", "there"], 6, "AlreadyExists", "'there'"),
        (["topic", "create", "there", "--partitions", "9", "--exist-ok"], 6, "AlreadyExists", "partitions"),
        (["topic", "create", "x", "--partitions", "0"], 3, "InvalidArgument", "partitions"),
        (["topic", "adopt", "nix"], 5, "NotFound", "nix"),
        (["sub", "create", "s", "--topic", "nix"], 5, "NotFound", "'nix'"),
        (
            ["sub", "create", "s", "--topic", "there", "--ack-deadline", "0.5s"],
            3,
            "InvalidArgument",
            "ack_deadline",
        ),
        (["sub", "describe", "nix"], 5, "NotFound", "'nix'"),
        (["sub", "delete", "nix"], 5, "NotFound", "'nix'"),
        (["sub", "update", "nix", "--ordering"], 5, "NotFound", "'nix'"),
    ],
)
def test_a_mistake_has_a_code_and_names_the_culprit(
    run: CommandLine, arguments: list[str], code: int, kind: str, text: str
) -> None:
    run.json("topic", "create", "there")
    error = run.error(*arguments)
    assert (error["exit_code"], error["code"], error["type"]) == (1, code, kind)
    assert text in str(error["message"])


def test_an_existing_topic_with_the_same_settings_is_fine_when_asked(run: CommandLine) -> None:
    run.json("topic", "create", "there", "--ordering")
    again = run("topic", "create", "there", "--ordering", "--exist-ok")
    assert (again.exit_code, again.stdout) == (0, "Topic there exists with 8 partitions\n")


def test_people_get_tables_and_hints(run: CommandLine) -> None:
    empty = run("topic", "list")
    assert (empty.stdout, "topic create NAME" in empty.stderr) == ("", True)
    assert run("topic", "create", "orders").stdout == "Created topic orders with 8 partitions\n"
    header, row = run("topic", "list").stdout.splitlines()
    assert header.split()[:2] == ["name", "partitions"]
    assert row.split()[:2] == ["orders", "8"]
    assert "partitions        8\n" in run("topic", "describe", "orders").stdout


def test_a_long_list_of_columns_is_not_cut_in_a_pipe(run: CommandLine) -> None:
    name = "n" * 200
    run.json("topic", "create", name, "--label", "l=" + "v" * 100)
    assert f"{name} " in run("topic", "list").stdout
    assert "v" * 100 in run("topic", "list").stdout


def test_people_read_durations_as_they_type_them(run: CommandLine) -> None:
    run.json("topic", "create", "orders", "--retention", "7d")
    assert "retention         7d\n" in run("topic", "describe", "orders").stdout
    run.json(
        "sub", "create", "billing", "--topic", "orders", "--ack-deadline", "90s", "--min-backoff", "500ms"
    )
    row = run("sub", "list").stdout.splitlines()[1]
    assert row.split()[3:5] == ["90s", "500ms"]


def test_a_subscription_tells_its_lag_and_what_is_wrong_with_it(run: CommandLine) -> None:
    run.json("topic", "create", "orders")
    run.json("sub", "create", "billing", "--topic", "orders")
    run("publish", "orders", stdin="one\ntwo\n")
    assert "lag               2\n" in run("sub", "describe", "billing").stdout
    run.json("topic", "delete", "orders", "--yes")
    detached = run("sub", "describe", "billing")
    assert detached.exit_code == 0
    assert "detached" in detached.stdout
    assert "`kafka-pubsub subscription delete billing`" in detached.stdout


def test_help_lists_every_subcommand_in_a_whole_sentence(run: CommandLine) -> None:
    for words in ([], ["topic"], ["subscription"]):
        assert "..." not in run(*words, "--help").stdout.split("Examples:")[0].replace("[ARGS]...", "")
