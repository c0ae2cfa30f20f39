"""Looking doesn't consume: `pull` without `--ack`, `peek` and `topic tail`."""

from __future__ import annotations

import json

import pytest

from kafka_pubsub.cli import messages
from tests.unit.cli.conftest import CommandLine

Line = dict[str, object]


@pytest.fixture
def orders(run: CommandLine) -> CommandLine:
    run.json("topic", "create", "orders", "--partitions", "1")
    run.json("subscription", "create", "billing", "--topic", "orders", "--ordering")
    run("publish", "orders", "--key", "k", stdin="one\ntwo\nthree\n")
    return run


def lines(run: CommandLine, *arguments: str) -> list[Line]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_peek_shows_all_of_a_key_and_changes_nothing(orders: CommandLine) -> None:
    for _ in range(2):
        seen = lines(orders, "peek", "billing")
        assert [(each["data"], each["state"], each["attempt"]) for each in seen] == [
            ("one", "ready", 1),
            ("two", "ready", 1),
            ("three", "ready", 1),
        ]
    assert seen[0].keys() - lines(orders, "topic", "tail", "orders")[0].keys() == {"state", "next_due"}
    few = orders("peek", "billing", "--max", "2")
    assert [line.split("  ")[1:] for line in few.stdout.splitlines()] == [["[k]", "one"], ["[k]", "two"]]
    assert few.stderr == "There are more: --max N shows more than 2.\n"
    assert orders("peek", "billing", "--max", "3").stderr == ""


def test_peek_says_what_waits_and_for_how_long(orders: CommandLine) -> None:
    run = orders
    run("subscription", "update", "billing", "--min-backoff", "5m", "--max-backoff", "9m")
    with run.pubsub.subscription("billing") as sub:
        sub.receive(1, 30)[0].nack(delay=300)
    first, *_ = run("peek", "billing").stdout.splitlines()
    assert first.split("  ")[1:] == ["[k]", "(attempt 2)", "(waiting, due in 5m)", "one"]
    seen = lines(run, "peek", "billing")[0]
    assert (seen["state"], seen["attempt"]) == ("waiting", 2)
    assert seen["next_due"] is not None


def test_tail_shows_the_newest(orders: CommandLine) -> None:
    assert [each["data"] for each in lines(orders, "topic", "tail", "orders", "-n", "2")] == ["two", "three"]
    assert orders("topic", "tail", "orders", "--data-only").stdout == "one\ntwo\nthree\n"
    orders("topic", "create", "empty")
    assert orders("topic", "tail", "empty").stderr == "Topic empty has no messages.\n"
    assert orders.error("topic", "tail", "nix")["type"] == "NotFound"
    assert orders.error("peek", "nix")["type"] == "NotFound"


@pytest.mark.parametrize(
    "command", [["pull", "billing", "--max", "1"], ["peek", "billing"], ["topic", "tail", "orders"]]
)
def test_a_terminal_gets_bodies_that_are_cut(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    run.json("topic", "create", "orders", "--partitions", "1")
    run.json("subscription", "create", "billing", "--topic", "orders")
    run("publish", "orders", "x" * 5000)
    assert "x" * 5000 in run(*command).stdout, "a pipe gets all"
    monkeypatch.setattr(messages, "at_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    cut = run(*command)
    (line,) = cut.stdout.splitlines()
    assert line.endswith(f"  {'x' * 100}… (5,000 bytes)")
    assert "1 body was cut: --full shows everything." in cut.stderr
    assert "x" * 5000 in run(*command, "--full").stdout
    assert "x" * 5000 in run(*command, "--json").stdout
    assert "x" * 5000 in run(*command, "--data-only").stdout
