"""Which field breaks between two Avro schemas, and which changes are harmless."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_pubsub.errors import SchemaError
from kafka_pubsub.records.compatibility import compare, find_breaks


def record(*fields: Any, name: str = "Order") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields],
    }


LINE = record(("price", "long"), name="Line")
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (record(("id", "long"), ("note", "string", "")), record(("id", "long"))),
        (record(("id", "long")), record(("id", "long"), ("note", "string"))),
        (record(("id", "long")), record(("id", "int"))),
        (record(("id", ["null", "long"])), record(("id", "long"))),
        (record(("text", "string")), record(("text", "bytes"))),
        ({**record(("id", "long"), name="Sale"), "aliases": ["Order"]}, record(("id", "long"))),
        (record(("colour", {**COLOUR, "symbols": ["RED"], "default": "RED"})), record(("colour", COLOUR))),
    ],
    ids=[
        "new with a default",
        "gone",
        "wider",
        "optional",
        "as text",
        "renamed with an alias",
        "enum with a default",
    ],
)
def test_what_breaks_nothing(new: Any, old: Any) -> None:
    assert compare("avro", json.dumps(new), json.dumps(old)) == []


@pytest.mark.parametrize(
    ("new", "old", "field", "problem"),
    [
        (record(("id", "long"), ("note", "string")), record(("id", "long")), "note", "has no default"),
        (record(("id", "int")), record(("id", "long")), "id", "long can't be read as int"),
        (
            record(("id", "long")),
            record(("id", ["null", "long"])),
            "id",
            "may have null, which can't be read as long",
        ),
        (
            record(("lines", {"type": "array", "items": record(("price", "string"), name="Line")})),
            record(("lines", {"type": "array", "items": LINE})),
            "lines[].price",
            "long can't be read as string",
        ),
        (
            record(("by", {"type": "map", "values": ["null", record(("price", "string"), name="Line")]})),
            record(("by", {"type": "map", "values": ["null", LINE]})),
            "by{}.price",
            "long can't be read as string",
        ),
        (
            record(("colour", {**COLOUR, "symbols": ["RED"]})),
            record(("colour", COLOUR)),
            "colour",
            "GREEN of the enum",
        ),
        (
            record(("hash", {"type": "fixed", "name": "Hash", "size": 8})),
            record(("hash", {"type": "fixed", "name": "Hash", "size": 4})),
            "hash",
            "4 bytes can't be read as 8",
        ),
        (
            record(("id", "long"), name="Sale"),
            record(("id", "long")),
            "",
            "record Order can't be read as record Sale",
        ),
    ],
)
def test_what_breaks_is_named(new: Any, old: Any, field: str, problem: str) -> None:
    ((named, said),) = compare("avro", json.dumps(new), json.dumps(old))
    assert named == field
    assert problem in said


def test_each_field_that_breaks_is_named() -> None:
    new = record(("id", "int"), ("a", "string"), ("b", "string"))
    assert [field for field, _ in compare("avro", json.dumps(new), json.dumps(record(("id", "long"))))] == [
        "id",
        "a",
        "b",
    ]


def test_all_earlier_ones_are_compared_in_the_directions_that_are_wanted() -> None:
    one, two, three = (
        record(("id", "long"), *more) for more in ([("note", "int")], [], [("note", "string", "")])
    )
    earlier = {1: json.dumps(one), 2: json.dumps(two)}
    found = [each[:3] for each in find_breaks("avro", json.dumps(three), earlier)]
    assert found == [(1, "backward", "note")], "what v2 had no more v1 still has"
    found = [each[:3] for each in find_breaks("avro", json.dumps(three), earlier, "forward")]
    assert found == [(1, "forward", "note")]
    assert len(find_breaks("avro", json.dumps(three), earlier, "full")) == 2


def test_a_text_that_is_no_schema_is_said() -> None:
    for format_, said in (("avro", "not an Avro schema"), ("json", "not a JSON Schema")):
        with pytest.raises(SchemaError, match=said):
            compare(format_, "{", "{}")  # type: ignore[arg-type]
