"""Avro bodies: nothing that can't be read is lost, and dangerous schemas are refused."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from kafka_pubsub import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": LINE,
            },
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
#: All its fields may be null, so a body that can't be read looks like one that is empty.
LOOSE = {"type": "record", "name": "Unkeyed", "fields": [{"name": "a", "type": ["null", "string"]}]}


def body(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_bodies_by_a_schema(spark: SparkSession) -> None:
    from spark.reading.decoding import decoded

    value = {"id": 5, "note": None, "lines": [{"sku": "x"}], "kind": "B", "at": 1_700_000_000_000}
    good = body(ORDER, value)
    frame = spark.createDataFrame([(1, good), (2, good[:-3]), (3, b""), (4, None)], "n int, data binary")
    found = decoded(frame, json.dumps(ORDER)).orderBy("n").collect()
    assert [row.record is None for row in found] == [False, True, True, True]
    assert [row.problem is None for row in found] == [True, False, False, False]
    assert (found[0].record.id, found[0].record.lines[0].sku, found[0].record.kind) == (5, "x", "B")
    assert found[0].record["at"].timestamp() == 1_700_000_000
    assert "bytes)" in found[1].problem
    assert found[3].problem == "a tombstone has no body"
    assert bytes(found[1].data) == good[:-3]


def test_an_empty_record_is_told_from_one_that_can_t_be_read(spark: SparkSession) -> None:
    from spark.reading.decoding import decoded

    frame = spark.createDataFrame([(1, body(LOOSE, {"a": None})), (2, b"\x07")], "n int, data binary")
    first, second = decoded(frame, json.dumps(LOOSE)).orderBy("n").collect()
    assert (first.record.a, first.problem) == (None, None)
    assert second.record is None
    assert second.problem


@pytest.mark.parametrize("framed", [False, True], ids=["bare", "framed"])
def test_bytes_that_are_left_over_are_told(spark: SparkSession, framed: bool) -> None:
    from spark.reading.decoding import decoded

    schema = {"type": "record", "name": "Sum", "fields": [{"name": "total", "type": "double"}]}
    good, trailer = body(schema, {"total": 2.5}), b"\xffkpubsub\x00"
    # Text has enough bytes for a double.
    bodies = [good, b'{"id": 1, "total": 2.5}', good + b"\0", good * 2, trailer, good + trailer[:5], good[:7]]
    frame = b"\0\0\0\0\7" if framed else b""
    rows = [(at, frame + each) for at, each in enumerate(bodies)]
    options: dict[str, Any] = {}
    if framed:
        options = {"framing": "confluent", "writers": {7: json.dumps(schema)}}
    given = spark.createDataFrame(rows, "n int, data binary")
    first, *others = decoded(given, json.dumps(schema), **options).orderBy("n").collect()
    assert (first.record.total, first.problem) == (2.5, None)
    assert [row.record for row in others] == [None] * 6
    assert all("isn't a body of the schema" in row.problem for row in others)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not an Avro schema"),
        ('{"type": "nonsense"}', "not an Avro schema"),
        (
            {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]},
            "contains itself",
        ),
        ({"type": "array", "items": "null"}, "without limit"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "without limit"),
    ],
)
def test_schemas_that_are_wrong_or_dangerous_are_refused(schema: Any, said: str) -> None:
    from kafka_pubsub.records.limits import check_schema

    with pytest.raises(SchemaError, match=said):
        check_schema(schema if isinstance(schema, str) else json.dumps(schema))
