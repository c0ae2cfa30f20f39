"""How an Avro schema's bodies can grow is found before any is read."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from kafka_pubsub import SchemaError
from kafka_pubsub.records.limits import (
    MOST_BYTES,
    MOST_DEPTH,
    MOST_FIELDS,
    MOST_VALUES,
    CountedBytes,
    Growth,
    check_avro,
    check_schema,
    parse_avro,
    refuse_large,
)


def record(name: str, *kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def growth(schema: Any) -> Growth:
    parsed, named = parse_avro(json.dumps(schema), {})
    return check_avro(parsed, named)


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ("int", Growth(1, 0, 0)),
        (record("R", "int", "null", ["null", "string"]), Growth(5, 0, 0)),
        (array("int"), Growth(1, 1, 1)),
        ({"type": "map", "values": "null"}, Growth(1, 2, 2)),
        (array(record("R", "int", "null", "null")), Growth(1, 4, 4)),
        (array(array(record("R", "boolean"))), Growth(1, 2, 2)),
        (record("R", record("I", "int"), "I"), Growth(5, 0, 0)),
        (record("R", array(record("I", "int", "int", "int")), array("I")), Growth(3, 2, 4)),
        (array({"type": "fixed", "name": "F", "size": 1}), Growth(1, 1, 1)),
        (array({"type": "string", "logicalType": "uuid"}), Growth(1, 1, 1)),
    ],
)
def test_growth_is_the_most_values_of_a_read(schema: Any, found: Growth) -> None:
    assert growth(schema) == found


NAMES = [f"N{number}" for number in range(40)]
#: Forty records, each with two of the next: a body of no byte has as many values as a house has atoms.
DOUBLING = record(NAMES[-1], "null")
for _name in reversed(NAMES[:-1]):
    DOUBLING = record(_name, DOUBLING, DOUBLING["name"])
DEEP: Any = "int"
for _ in range(MOST_DEPTH + 1):
    DEEP = array(DEEP)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not an Avro schema"),
        ('{"type": "nonsense"}', "not an Avro schema"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "not an Avro schema"),
        ("[" * 100_000, "not an Avro schema"),
        ('{"__fastavro_parsed": true, "type": "int"}', "mark of fastavro"),
        ('[{"__fastavro_parsed": true, "type": "int"}]', "mark of fastavro"),
        (record("R", ["null", "R"]), "R contains itself"),
        (record("a.R", array({"type": "map", "values": "R"})), r"a\.R contains itself"),
        (record("R", record("I", ["null", "R"])), "R contains itself"),
        (array("null"), "without limit"),
        (array(record("R")), "without limit"),
        (array(record("R", "null", record("I", "null"))), "without limit"),
        (array({"type": "fixed", "name": "F", "size": 0}), "without limit"),
        (record("R", record("I"), array("I")), "without limit"),
        (array({"type": "fixed", "name": "F", "size": 0.6}), "F has the size 0.6"),
        ({"type": "fixed", "name": "F", "size": -1}, "F has the size -1"),
        (record("R", {"type": "enum", "name": "int", "symbols": ["A"]}, "int"), "'int' is a type of Avro"),
        (record("null", "int"), "'null' is a type of Avro"),
        (DOUBLING, "more than 10000 fields"),
        (record("R", *["null"] * MOST_FIELDS), "more than 10000 fields"),
        (DEEP, "more than 64 deep"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10_000}, "the most are 1000"),
        (
            {"type": "fixed", "name": "F", "size": 9000, "logicalType": "decimal", "precision": 9000},
            "the most are",
        ),
    ],
)
def test_schemas_that_are_wrong_or_dangerous_are_refused(schema: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        check_schema(schema if isinstance(schema, str) else json.dumps(schema))


def test_a_schema_that_is_right_is_returned_as_it_was_given() -> None:
    given = record("a.R", {"type": "bytes", "logicalType": "decimal", "precision": 4}, ["null", "int"])
    assert check_schema(json.dumps(given)) == given


class Counting(io.BytesIO):
    """Counts the reads of a decoder."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read(size)


def count(value: object) -> int:
    """How many values a value is, keys and containers included."""
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize(
    ("items", "smallest"),
    [
        ("int", 0),
        ("double", 0.0),
        ("string", ""),
        (record("R", "null", "boolean", "null", "null"), {"f0": None, "f1": True, "f2": None, "f3": None}),
        ({"type": "map", "values": "null"}, {"": None}),
        (array("boolean"), [True]),
        (["null", record("R", "int", "null")], {"f0": 0, "f1": None}),
    ],
)
def test_a_value_takes_as_many_reads_as_its_schema_says(items: Any, smallest: object) -> None:
    schema, found, value = fastavro.parse_schema(array(items)), growth(array(items)), [smallest] * 100
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, value)
    source = Counting(body.getvalue())
    assert fastavro.schemaless_reader(source, schema, None) == value
    assert count(value) <= found.fields + source.reads * found.by_read
    assert found.fields + found.harmless * found.by_read <= MOST_VALUES


def test_reading_ends_at_the_limit() -> None:
    source = CountedBytes(bytes(10), Growth(MOST_VALUES - 9, 3, 3))
    assert [source.read(1) for _ in range(3)] == [b"\0"] * 3
    with pytest.raises(SchemaError, match="more than"):
        source.read(1)


def test_a_schema_without_items_has_no_limit_but_that_of_bytes() -> None:
    assert growth("bytes").harmless == MOST_BYTES
    refuse_large(bytes(MOST_BYTES))
    with pytest.raises(SchemaError, match="the most are"):
        refuse_large(bytes(MOST_BYTES + 1))


def test_a_reader_with_more_fields_makes_more_values() -> None:
    assert growth(array("int")).resolved_to(Growth(5, 2, 9)) == Growth(5, 9, 9)
    assert growth("int").resolved_to(Growth(5, 2, 9)) == Growth(5, 0, 9)
