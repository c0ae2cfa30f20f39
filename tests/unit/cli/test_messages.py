"""`publish` and `pull` over an in-memory cluster."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import CommandLine

Line = dict[str, object]


@pytest.fixture
def orders(run: CommandLine) -> CommandLine:
    """A topic with a single subscription."""
    run.json("topic", "create", "orders", "--partitions", "2")
    run.json("subscription", "create", "billing", "--topic", "orders", "--ordering")
    return run


def pulled(run: CommandLine, *arguments: str) -> list[Line]:
    result = run("pull", "billing", "--ack", "--json", "--timeout", "1s", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_an_argument_is_one_message(orders: CommandLine) -> None:
    answer = orders.json("publish", "orders", "hällo", "--key", "k", "-a", "kind=created", "-a", "empty=")
    assert isinstance(answer, dict)
    (message,) = pulled(orders)
    assert message.pop("publish_time")
    assert message == {
        "message_id": answer["message_id"],
        "ordering_key": "k",
        "data": "hällo",
        "attributes": {"kind": "created", "empty": ""},
        "attempt": 1,
        "priority": 0,
        "durable": True,
    }


def test_a_person_reads_the_id(orders: CommandLine) -> None:
    result = orders("publish", "orders", "x")
    assert result.stdout.startswith("Published orders:")
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (["publish", "nix", "x"], "NotFound", "nix"),
        (["publish", "orders", "x", "--key", ""], "InvalidArgument", "Ordering key cannot be empty"),
        (["publish", "orders", "x", "--key", "k" * 1025], "InvalidArgument", "1024 bytes"),
        (["publish", "orders", "x", "-a", "ps-mine=1"], "InvalidArgument", "ps-mine"),
        (["publish", "orders", "x" * 2_000_000], "InvalidArgument", "max.message.bytes"),
        (["pull", "nix"], "NotFound", "nix"),
    ],
)
def test_a_mistake_is_an_error(orders: CommandLine, arguments: list[str], kind: str, text: str) -> None:
    error = orders.error(*arguments)
    assert (error["exit_code"], error["type"]) == (1, kind)
    assert text in str(error["message"])
