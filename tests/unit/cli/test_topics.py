"""`topic` and `subscription` over an in-memory cluster."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pubsub.cli import options
from kafka_pubsub.cli.options import at_once, still_there
from kafka_pubsub.errors import NotFound
from kafka_pubsub.log.memory.backend import MemoryBackend
from tests.unit.cli.conftest import CommandLine


def test_a_topic_is_made_listed_described_changed_and_deleted(run: CommandLine) -> None:
    made = run.json("topic", "create", "orders", "--partitions", "3", "--ordering", "--label", "team=shop")
    assert made == {
        "name": "orders",
        "partitions": 3,
        "replication": 1,
        "message_ordering": True,
        "retention": None,
        "priorities": 1,
        "transient": False,
        "causal": False,
        "schema": None,
        "adopted": False,
        "labels": {"team": "shop"},
    }
    assert run.json("topic", "list") == [made]
    assert run.json("topic", "update", "orders", "--retention", "7d") == {**made, "retention": 604_800}
    run.json("subscription", "create", "billing", "--topic", "orders")
    described = run.json("topic", "describe", "orders")
    assert described == {
        **made,
        "retention": 604_800,
        "default_priority": None,
        "lanes": ["orders"],
        "subscriptions": ["billing"],
        "kafka_partitions": 6,
        "kafka_partitions_most": 6,
        "repartition": None,
    }
    run.json("topic", "update", "orders", "--default-retention", "--no-ordering")
    assert run.pubsub.topic("orders").options.retention is None
    assert run.pubsub.topic("orders").options.message_ordering is False
    assert run.json("topic", "delete", "orders", "--yes") == {"deleted": "orders", "kept_by_kafka": False}
    assert run.json("topic", "list") == []


def test_deleting_an_adopted_topic_says_that_kafka_keeps_it(
    run: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    admin = run.pubsub._cluster._connected().backend.admin
    admin.create_topic("clicks", 2, None, {})
    run.json("topic", "adopt", "clicks")
    listed: Any = run.json("topic", "list")
    assert [each["adopted"] for each in listed] == [True]
    described: Any = run.json("topic", "describe", "clicks")
    assert described["adopted"] is True
    assert run.pubsub.topic("clicks").adopted
    result = run("topic", "delete", "clicks", "--yes")
    assert result.stdout == "Forgot topic clicks: it was adopted, so Kafka keeps it and its messages\n"
    assert "Kafka keeps it and its messages" in caplog.text
    assert admin.topic("clicks").partitions == 2
    run.json("topic", "adopt", "clicks")
    assert run.json("topic", "delete", "clicks", "--yes") == {"deleted": "clicks", "kept_by_kafka": True}
    run.json("topic", "adopt", "clicks")
    assert run.pubsub.delete_topic("clicks") is True
    run.json("topic", "create", "orders")
    assert run.pubsub.topic("orders").delete() is False


def test_adopting_says_which_keys_lie_elsewhere_and_what_to_do(run: CommandLine) -> None:
    backend = run.pubsub._cluster._connected().backend
    assert isinstance(backend, MemoryBackend)
    backend.admin.create_topic("clicks", 2, None, {})
    for number in range(100):
        backend.cluster.append("clicks", 0, b"x", b"key-%d" % number)
    result = run("topic", "adopt", "clicks")
    assert result.stdout == "Adopted topic clicks with 2 partitions\n"
    assert "Warning: " in result.stderr
    assert "the topic had 1 partition when" in result.stderr
    again: Any = run.json("topic", "adopt", "clicks", "--exist-ok")
    places = again["key_places"]
    assert (places["sampled"], places["former_partitions"]) == (100, 1)
    assert places["examples"][0]["partition"] == 0
    backend.admin.create_topic("empty", 2, None, {})
    assert run("topic", "adopt", "empty").stderr == ""


DESTRUCTIVE = [
    ("topic", "delete", "orders"),
    ("subscription", "delete", "billing"),
    ("deadletter", "purge", "billing"),
    ("deadletter", "release", "billing", "--drop"),
]


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=" ".join)
@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["", "json"])
def test_what_cannot_be_undone_is_not_done_without_a_terminal_or_yes(
    run: CommandLine, command: tuple[str, ...], as_json: tuple[str, ...]
) -> None:
    run.json("topic", "create", "orders")
    run.json("topic", "create", "dead")
    run.json("sub", "create", "billing", "--topic", "orders", "--ordering", "--dead-letter-topic", "dead")
    refused = run(*command, *as_json)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "give --yes" in refused.stderr
    assert run("sub", "describe", "billing").exit_code == run("topic", "describe", "orders").exit_code == 0
    assert run(*command, *as_json, "--yes").exit_code == 0


@pytest.mark.parametrize("command", DESTRUCTIVE[:2], ids=" ".join)
def test_at_a_terminal_a_person_is_asked(
    run: CommandLine, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "_at_a_terminal", lambda: True)
    run.json("topic", "create", "orders")
    run.json("sub", "create", "billing", "--topic", "orders")
    answer = run(*command, stdin="n\n")
    assert (answer.exit_code, "Delete" in answer.stderr) == (130, True)
    assert answer.stderr.endswith("Nothing was done.\n")
    assert run(*command, stdin="y\n").exit_code == 0
    run.pubsub._cluster._connected().backend.admin.create_topic("clicks", 2, None, {})
    run.json("topic", "adopt", "clicks")
    assert "Kafka keeps it" in run("topic", "delete", "clicks", stdin="n\n").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "text"),
    [
        (["topic", "describe", "nix"], 5, "NotFound", "'nix'"),
        (["topic", "delete", "nix", "--yes"], 5, "NotFound", "'nix'"),
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
            "--ack-deadline",
        ),
        (["sub", "describe", "nix"], 5, "NotFound", "'nix'"),
        (["sub", "delete", "nix", "--yes"], 5, "NotFound", "'nix'"),
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
    lines = [line.split() for line in run("sub", "describe", "billing").stdout.splitlines()]
    assert ["ack", "deadline", "90s"] in lines
    assert ["min", "backoff", "500ms"] in lines


def test_a_topic_is_given_partitions_and_reports_what_it_waits_for(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.shares = True
    monkeypatch.setattr(run.pubsub._cluster.repartitioner, "_fence_seconds", 0)
    run.json("topic", "create", "orders", "--partitions", "2")
    run.json("sub", "create", "billing", "--topic", "orders", "--ordering")
    run("publish", "orders", "--key", "k", stdin="one\n")
    stopped = run("topic", "repartition", "orders", "--partitions", "3", "--timeout", "0s", "--yes")
    assert stopped.exit_code == 1
    assert "the old layout to be finished: billing: 1 message (no process receives)" in stopped.stderr
    assert "`kafka-pubsub subscription keys NAME` shows which" in stopped.stderr
    assert "`kafka-pubsub topic repartition orders --partitions 3` goes on" in stopped.stderr
    assert run.pubsub.topic("orders").options.partitions == 2
    described = run.json("topic", "describe", "orders")
    assert isinstance(described, dict)
    under_way = {"partitions": 3, "phase": "draining", "waiting": {"billing": 1}, "idle": ["billing"]}
    assert described["repartition"] == {**under_way, "unreadable": {}}
    assert "to 3 partitions is under way, keys are refused" in run("topic", "describe", "orders").stdout
    given_up = run("topic", "repartition", "orders", "--partitions", "2")
    assert "the change to 3 is given up, messages with a key are accepted again" in given_up.stdout
    run("topic", "repartition", "orders", "--partitions", "3", "--timeout", "0s", "--yes")
    (message,) = run.pubsub.subscription("billing").receive(1, timeout=10)
    message.ack()
    done = run("topic", "repartition", "orders", "--partitions", "3")
    assert (done.exit_code, done.stdout) == (0, "Topic orders has 3 partitions\n")
    made = run.json("topic", "repartition", "orders", "--partitions", "3")
    assert isinstance(made, dict)
    assert made["partitions"] == 3
    assert run.error("topic", "repartition", "orders", "--partitions", "1")["type"] == "InvalidArgument"


def test_a_repartitioning_says_what_it_refuses_and_asks(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.json("topic", "create", "orders", "--partitions", "2")
    run.json("sub", "create", "billing", "--topic", "orders", "--ordering")
    run.json("sub", "create", "audit", "--topic", "orders")
    run("publish", "orders", "--key", "k", stdin="one\ntwo\n")
    command = ("topic", "repartition", "orders", "--partitions", "3")
    refused = "repartitioning topic orders refuses messages with a key for 75 s and longer, and"
    error = run.error(*command)
    assert error["exit_code"] == 2
    assert str(error["message"]).startswith(f"{refused} --json never asks: give --yes")
    told = run(*command)
    assert told.exit_code == 2
    assert f"{refused} there is no terminal to ask at: give --yes" in " ".join(told.stderr.split())
    monkeypatch.setattr(options, "_at_a_terminal", lambda: True)
    asked = run(*command, stdin="n\n")
    assert asked.exit_code == 130
    assert "publishing to orders with an ordering key is refused: for 75 s" in asked.stderr
    assert "(billing: 2 messages (no process receives))" in asked.stderr
    assert "audit" not in asked.stderr
    assert "Give topic orders 3 partitions instead of 2? [y/N]: " in asked.stderr
    assert "Nothing was done." in asked.stderr
    assert run.pubsub.repartition_progress("orders") is None
    assert (
        run("topic", "repartition", "orders", "--partitions", "2").exit_code == 0
    )  # as many as the topic has


def test_a_repartitioning_that_is_under_way_goes_on_and_is_given_up_without_asking(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.shares = True
    monkeypatch.setattr(run.pubsub._cluster.repartitioner, "_fence_seconds", 0)
    run.json("topic", "create", "orders", "--partitions", "2")
    run.json("sub", "create", "billing", "--topic", "orders", "--ordering")
    run("publish", "orders", "--key", "k", stdin="one\n")
    begin = ("topic", "repartition", "orders", "--partitions", "3", "--timeout", "0s")
    assert run.error(*begin, "--yes")["type"] == "DeadlineExceeded"
    assert run.error(*begin)["type"] == "DeadlineExceeded"
    assert run.json("topic", "repartition", "orders", "--partitions", "2")


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "describe", "ordres"],
        ["topic", "delete", "ordres", "--yes"],
        ["publish", "ordres", "x"],
        ["sub", "create", "mail", "--topic", "ordres"],
        ["sub", "describe", "biling"],
        ["sub", "delete", "biling", "--yes"],
        ["peek", "biling"],
    ],
)
def test_a_name_that_was_misspelt_is_suggested(run: CommandLine, command: list[str]) -> None:
    for name in ("orders", "audit", "mail"):
        run.json("topic", "create", name)
    run.json("sub", "create", "billing", "--topic", "orders")
    meant = "billing" if "biling" in command else "orders"
    assert f"not found; did you mean '{meant}'? " in str(run.error(*command)["message"])
    assert "did you mean" not in str(run.error("topic", "describe", "xyz")["message"])


def test_help_lists_every_subcommand_in_a_whole_sentence(run: CommandLine) -> None:
    for words in ([], ["topic"], ["subscription"], ["deadletter"]):
        assert "..." not in run(*words, "--help").stdout.split("Examples:")[0].replace("[ARGS]...", "")


@pytest.mark.parametrize("listed", [still_there, at_once])
def test_what_was_deleted_since_it_was_listed_is_left_out(listed: Any) -> None:
    def show(name: str) -> str:
        if name == "gone":
            raise NotFound("topic 'gone' not found")
        return name.upper()

    assert listed(["a", "gone", "b"], show) == ["A", "B"]


def test_a_topic_sums_the_partitions_of_its_lanes_and_their_retry_topics(run: CommandLine) -> None:
    made = run("topic", "create", "jobs", "--partitions", "8", "--priorities", "10", "--transient")
    assert "Its 20 lanes, each made when it is first used, will be 160 partitions in Kafka" in made.stderr
    assert "each subscription adds 160." in made.stderr
    run.json("subscription", "create", "billing", "--topic", "jobs")
    run.json("publish", "jobs", "x", "--priority", "9")
    described: Any = run.json("topic", "describe", "jobs")
    assert (described["kafka_partitions"], described["kafka_partitions_most"]) == (32, 320)
    there = {
        name: run.pubsub._cluster._connected().backend.admin.topic(name).partitions for name in names(run)
    }
    assert sum(there.values()) == 32
    assert not run("topic", "create", "orders", "--partitions", "8").stderr
    run.json("topic", "create", "paid", "--partitions", "2", "--causal")
    causal: Any = run.json("topic", "describe", "paid")
    assert causal["kafka_partitions"] == 4, "its inbox has as many"


def names(run: CommandLine) -> list[str]:
    """The Kafka topics of `jobs`."""
    found = run.pubsub._cluster._connected().backend.admin.topic_names()
    return [each for each in found if each.startswith("jobs")]


def test_a_topic_gets_lanes_and_shows_them(run: CommandLine) -> None:
    made: Any = run.json("topic", "create", "jobs", "--partitions", "1", "--priorities", "3", "--transient")
    assert (made["priorities"], made["transient"]) == (3, True)
    first: Any = run.json("publish", "jobs", "x", "--priority", "2")
    assert first["message_id"] == "jobs.lane.p2:0:0"
    second: Any = run.json("publish", "jobs", "x", "--transient")
    assert second["message_id"] == "jobs.lane.t1:0:0"
    described: Any = run.json("topic", "describe", "jobs")
    assert described["default_priority"] == 1
    assert described["lanes"] == ["jobs", "jobs.lane.p2", "jobs.lane.t1"]
    assert "jobs.lane.p2" in run("topic", "describe", "jobs").stdout
    assert "priority 3" in str(run.error("publish", "jobs", "x", "--priority", "3")["message"])
    assert "can't go down" in str(run.error("topic", "update", "jobs", "--priorities", "2")["message"])
    run.json("topic", "create", "later")
    later: Any = run.json("topic", "update", "later", "--priorities", "10", "--transient")
    assert (later["priorities"], later["transient"]) == (10, True)


def test_several_topics_and_subscriptions_are_deleted_by_one_command(run: CommandLine) -> None:
    for name in ("orders", "stock"):
        run.json("topic", "create", name)
        run.json("sub", "create", f"{name}-sub", "--topic", name)
    said = run("sub", "delete", "orders-sub", "stock-sub", "--yes").stdout
    assert said == "Deleted subscription orders-sub\nDeleted subscription stock-sub\n"
    said = run("topic", "delete", "orders", "stock", "--yes").stdout
    assert said == "Deleted topic orders\nDeleted topic stock\n"
    assert run.json("topic", "list") == []
    assert run("topic", "delete").exit_code == 2
