"""Code that is made for an Avro schema reads what fastavro reads, and leaves the rest to fastavro."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from fastavro import schemaless_writer

from kafka_pubsub import SchemaError
from kafka_pubsub.records.avro_code import Read, make_reader
from kafka_pubsub.records.limits import parse_avro
from kafka_pubsub.records.parsing import parse_schema

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
FIXED = {"type": "fixed", "name": "Three", "size": 3}


def made(schema: object) -> Read | None:
    return make_reader(*parse_avro(json.dumps(schema), {}))


def read(schema: object, body: bytes) -> tuple[object, int]:
    """What the code reads of a body, and the place where it ends."""
    reader = made(schema)
    assert reader is not None
    return reader(body, 0)


def record(*fields: object, name: str = "R") -> dict[str, Any]:
    named = [{"name": f"f{number}", "type": each} for number, each in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("long", -(2**63)),
        ("float", 0.5),
        ("double", 0.1),
        ("string", "grün"),
        ("string", "s" * 10_000),
        ("bytes", b"\x80"),
        (FIXED, b"abc"),
        (COLOUR, "BLUE"),
        ({"type": "array", "items": "string"}, ["a", "", "b"]),
        ({"type": "array", "items": {"type": "array", "items": FIXED}}, [[b"abc"], []]),
        ({"type": "map", "values": "long"}, {"a": 1, "": -1}),
        ({"type": "map", "values": {"type": "map", "values": "null"}}, {"a": {"b": None}}),
        (["null", "string", "long"], 7),
        (["null", "string", "long"], None),
        (["null", {"type": "array", "items": ["null", "int"]}], [None, 3]),
        (record(), {}),
        (record(COLOUR, "Colour", record("int", name="In")), {"f0": "RED", "f1": "BLUE", "f2": {"f0": 1}}),
        ({"type": "array", "items": record("long", "string")}, [{"f0": 1, "f1": "a"}, {"f0": 2, "f1": "b"}]),
        ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 11, 27, tzinfo=UTC)),
        ({"type": "int", "logicalType": "date"}, date(2026, 11, 27)),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=7)),
        ({"type": "string", "logicalType": "of-another"}, "text"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_value_is_read_as_it_was_written(schema: object, value: object) -> None:
    parsed, _ = parse_avro(json.dumps(schema), {})
    body = io.BytesIO()
    schemaless_writer(body, parsed, value)
    assert read(schema, body.getvalue()) == (value, len(body.getvalue()))


def test_blocks_of_items_may_come_with_their_size() -> None:
    # Two items in six bytes, one item without a size.
    body = b"\x03\x0c" + b"\x04ab\x04cd" + b"\x02" + b"\x02e" + b"\0"
    assert read({"type": "array", "items": "string"}, body) == (["ab", "cd", "e"], len(body))
    body = b"\x01\x08" + b"\x02a\x02" + b"\0"
    assert read({"type": "map", "values": "int"}, body) == ({"a": 1}, len(body))


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("string", b"\x01"),
        ("bytes", b"\x03ab"),
        ("string", b"\x02\xff"),
        ("string", b""),
        ("double", b"abc"),
        (FIXED, b"ab"),
        (COLOUR, b"\x04"),
        (COLOUR, b"\x01"),
        (["null", "int"], b"\x04"),
        (["null", "int"], b"\x01\x02"),
        ([], b"\0"),
        ({"type": "map", "values": "null"}, b"\x02\x01\0"),
        ({"type": "array", "items": FIXED}, b"\xc0\x84\x3d"),
        ({"type": "array", "items": FIXED}, b"\xfe" + b"\xff" * 8 + b"\x01" + b"abc"),
        ("long", b"\xff" * 9 + b"\x02"),
        ("long", b"\x80" * 10 + b"\0"),
    ],
    ids=repr,
)
def test_what_does_not_fit_is_an_error(schema: object, body: bytes) -> None:
    with pytest.raises((IndexError, ValueError, EOFError, struct.error)):
        read(schema, body)


@pytest.mark.parametrize("body", [b"\x06ab", b"\x02ab"], ids=["short", "long"])
def test_a_body_that_is_too_short_or_too_long_has_another_end(body: bytes) -> None:
    assert read("string", body)[1] != len(body)


def test_names_are_no_code() -> None:
    name = "a': exit(), '''\"\n b"
    node = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"}]}
    reader = make_reader(node, {})
    assert reader is not None
    assert reader(b"\x02", 0) == ({name: 1}, 1)


def test_of_a_large_or_deep_schema_fastavro_reads_the_bodies() -> None:
    deep: object = "int"
    for _ in range(12):
        deep = {"type": "array", "items": deep}
    for schema, value in ((record(*["int"] * 1000), {f"f{number}": 7 for number in range(1000)}), (deep, [])):
        assert made(schema) is None
        codec = parse_schema("avro", json.dumps(schema))
        assert codec.decode(codec.encode(value)) == value


def test_what_the_code_refuses_is_refused_with_fastavros_words() -> None:
    codec = parse_schema("avro", json.dumps(record("string")))
    with pytest.raises(SchemaError, match=r"not a body of the schema \(1 bytes\): "):
        codec.decode(b"\x06")
    with pytest.raises(SchemaError, match="2 of 3 bytes are left over"):
        codec.decode(b"\0ab")
