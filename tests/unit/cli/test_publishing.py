"""`publish` from stdin and from a file: many messages of a call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import CommandLine
from tests.unit.cli.test_messages import pulled


@pytest.fixture
def orders(run: CommandLine) -> CommandLine:
    """A topic with a single subscription."""
    run.json("topic", "create", "orders", "--partitions", "2")
    run.json("subscription", "create", "billing", "--topic", "orders", "--ordering")
    return run


@pytest.mark.parametrize(
    "stdin", [b"one\ntwo\n\nfour\r\n", b"one\ntwo\n\nfour\r"], ids=["feed", "no feed at the end"]
)
def test_each_line_of_stdin_is_a_message_byte_for_byte(orders: CommandLine, stdin: bytes) -> None:
    result = orders("publish", "orders", "--key", "k", stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Published 4 messages to orders in ")
    assert [message["data"] for message in pulled(orders)] == ["one", "two", "", "four\r"]


def test_lines_of_a_file_with_keys_and_an_answer_for_each(orders: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"".join(b"k%d:%d:x\n" % (number % 3, number) for number in range(30)))
    result = orders("publish", "orders", "--file", str(path), "--key-separator", ":", "--json")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(answer["line"] for answer in answers) == list(range(1, 31))
    messages = pulled(orders)
    assert {each["message_id"] for each in messages} == {answer["message_id"] for answer in answers}
    for key in ("k0", "k1", "k2"):
        numbers = [int(str(each["data"]).split(":")[0]) for each in messages if each["ordering_key"] == key]
        assert numbers == list(range(int(key[1]), 30, 3))


def test_a_whole_file_is_one_message(orders: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(b"\x89PNG\n\n\xff")
    assert orders("publish", "orders", "--file", str(path), "--whole").exit_code == 0
    (message,) = pulled(orders)
    assert (message["data"], message["data_encoding"]) == ("iVBORwoK/w==", "base64")


def test_nothing_on_stdin_is_nothing_published(orders: CommandLine) -> None:
    assert orders("publish", "orders", stdin="").stdout.startswith("Published 0 messages")
    assert pulled(orders) == []


def test_a_bad_line_ends_it_and_the_lines_before_it_are_published(orders: CommandLine) -> None:
    result = orders(
        "publish",
        "orders",
        "--key-field",
        "user",
        "--json",
        stdin='{"user": 1}\n{"user": 2}\n{}\n{"user": 4}\n',
    )
    assert result.exit_code == 1
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["type"]) == (3, "InvalidArgument")
    assert error["message"].startswith("line 3: no field 'user'")
    assert len(result.stdout.splitlines()) == 2
    assert sorted(str(each["ordering_key"]) for each in pulled(orders)) == ["1", "2"]
