"""`publish` and `pull` over an in-memory cluster."""

from __future__ import annotations

import json
import math
from datetime import time
from decimal import Decimal
from pathlib import Path

import pytest

from kafka_pubsub.cli.messages import plain
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


@pytest.fixture
def records(run: CommandLine, tmp_path: Path) -> CommandLine:
    """A topic of records, and a record and another message in it."""
    (tmp_path / "orders").mkdir()
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "user_id", "type": "string"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "raw", "type": "bytes"},
        ],
    }
    (tmp_path / "orders" / "v1.avsc").write_text(json.dumps(schema))
    run.schemas = str(tmp_path)
    run.json("topic", "create", "orders", "--partitions", "1", "--schema", "orders")
    run.json("subscription", "create", "billing", "--topic", "orders")
    order = '{"user_id": "ada", "day": "2026-11-27", "raw": "a"}'
    run.json("publish", "orders", order, "--record", "--key", "ada")
    run.json("publish", "orders", "hello")
    return run


def test_records_are_published_and_shown_by_their_schema(records: CommandLine) -> None:
    shown = {"user_id": "ada", "day": "2026-11-27", "raw": "a"}
    for command in (["peek", "billing"], ["topic", "tail", "orders"], ["pull", "billing"]):
        found = [json.loads(each) for each in records(*command, "--decode", "--json").stdout.splitlines()]
        record, other = found
        assert record["record"] == shown
        assert "problem" not in record
        assert (other["record"], other["data"]) == (None, "hello")
        assert "doesn't say its schema" in other["problem"]
        result = records(*command, "--decode")
        assert '"user_id": "ada"' in result.stdout
        assert "hello" in result.stdout
        assert "1 message isn't a record, and shown as it is" in result.stderr
    only = records("peek", "billing", "--decode", "--data-only", "--max", "1").stdout
    assert json.loads(only) == shown


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        ("{", "SchemaError", "message 1 isn't a record of the topic: "),
        ('{"user_id": 1}', "SchemaError", "user_id: "),
        ('{"user_id": "a", "day": "soon", "raw": ""}', "SchemaError", "day: "),
    ],
)
def test_what_is_no_record_of_the_topic_is_refused(
    records: CommandLine, data: str, kind: str, text: str
) -> None:
    error = records.error("publish", "orders", data, "--record")
    assert error["type"] == kind
    assert text in str(error["message"])


def test_what_was_stored_before_a_misfit_is_counted(records: CommandLine, tmp_path: Path) -> None:
    good, bad = '{"user_id": "a", "day": "2026-11-27", "raw": ""}', "{}"
    file = tmp_path / "lines"
    for lines, told in (([good, bad], r"1 message was"), ([good, good, bad], "2 messages were")):
        file.write_text("\n".join(lines) + "\n")
        said = records("publish", "orders", "--file", str(file), "--record").stderr
        assert f"message {len(lines)} isn't a record of the topic: " in said
        assert f"({told} published)" in said


def test_without_schemas_decoding_says_where_they_are_named(records: CommandLine) -> None:
    records.schemas = None
    for command in (["peek", "billing", "--decode"], ["publish", "orders", "{}", "--record"]):
        error = records.error(*command)
        assert error["type"] == "FailedPrecondition"
        assert "set KAFKA_PUBSUB_SCHEMAS" in str(error["message"])


def test_values_of_records_are_shown_as_json_can() -> None:
    assert plain(
        {"a": [b"x", b"\xff"], "b": Decimal("1.50"), "c": time(8, 30), "d": (1.5, math.inf, None)}
    ) == {
        "a": ["x", "/w=="],
        "b": "1.50",
        "c": "08:30:00",
        "d": [1.5, "inf", None],
    }
