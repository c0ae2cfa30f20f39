"""`publish` and `pull` over an in-memory cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import CommandLine

Line = dict[str, object]


@pytest.fixture
def orders(run: CommandLine) -> CommandLine:
    """A topic with one subscription."""
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


def test_pull_shows_the_lane_of_a_message(run: CommandLine) -> None:
    run.json("topic", "create", "orders", "--partitions", "1", "--priorities", "10", "--transient")
    run.json("subscription", "create", "billing", "--topic", "orders", "--ageing", "1m", "--strict")

    def publish() -> None:
        run.json("publish", "orders", "low", "--priority", "2")
        run.json("publish", "orders", "default")
        run.json("publish", "orders", "lost?", "--priority", "9", "--transient")

    publish()
    described = run("subscription", "describe", "billing").stdout
    assert "orders.lane.p2: 1, the oldest for " in described
    assert "ageing             1m" in described
    shown = run("pull", "billing", "--ack", "--timeout", "1s")
    assert [line.split("  ", 1)[1] for line in shown.stdout.splitlines()] == [
        "(priority 9, transient)  lost?",
        "default",
        "(priority 2)  low",
    ]
    publish()
    lanes = [(message["data"], message["priority"], message["durable"]) for message in pulled(run)]
    assert lanes == [("lost?", 9, False), ("default", 4, True), ("low", 2, True)]
    changed = run.json("subscription", "update", "billing", "--ageing", "7s", "--no-strict")
    assert isinstance(changed, dict)
    assert (changed["ageing"], changed["strict"]) == (7, False)


def test_a_person_reads_the_id(orders: CommandLine) -> None:
    result = orders("publish", "orders", "x")
    assert result.stdout.startswith("Published orders:")
    assert result.stdout.count("\n") == 1


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


def test_pull_takes_so_many_and_leaves_the_rest(orders: CommandLine) -> None:
    orders("publish", "orders", "--key", "k", stdin="".join(f"{number}\n" for number in range(5)))
    assert [message["data"] for message in pulled(orders, "--max", "2")] == ["0", "1"]
    orders.pubsub.subscription("billing")
    assert [message["data"] for message in pulled(orders)] == ["2", "3", "4"]
    assert pulled(orders) == []


def test_data_only_is_the_bytes_and_a_person_sees_no_control_characters(orders: CommandLine) -> None:
    orders("publish", "orders", "--key", "k\x1b", stdin=b"\x1b[31m\xff\n\x1b[31m\xff\n")
    raw = orders("pull", "billing", "--ack", "--data-only", "--max", "1")
    assert raw.stdout_bytes == b"\x1b[31m\xff\n"
    shown = orders("pull", "billing", "--ack", "--max", "1").stdout
    assert "[k\\x1b]" in shown
    assert "\\x1b[31m\\xff" in shown
    assert "\x1b" not in shown
