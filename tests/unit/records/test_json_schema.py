"""JSON Schema: bodies fit it or name the field that doesn't, and no body takes time or memory without end."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel

from kafka_pubsub import SchemaError
from kafka_pubsub.records.codec import Codec
from kafka_pubsub.records.limits import MOST_BYTES, MOST_VALUES
from kafka_pubsub.records.parsing import parse_schema


class Item(BaseModel):
    sku: str
    price: float


class Order(BaseModel):
    id: str
    cents: int
    at: datetime
    items: list[Item] = []
    note: str | None = None


@dataclass
class Line:
    sku: str
    price: float


ONE = Order(id="ä", cents=5, at=datetime(2026, 1, 2, tzinfo=UTC), items=[Item(sku="x", price=1.5)])
BODY = (
    '{"id":"ä","cents":5,"at":"2026-01-02T00:00:00Z","items":[{"sku":"x","price":1.5}],"note":null}'.encode()
)
GIVEN: dict[str, Any] = json.loads(BODY)


def schema(text: object, references: dict[str, str] | None = None) -> Codec:
    return parse_schema("json", json.dumps(text), references or {})


ORDERS = schema(Order.model_json_schema())


def test_a_model_and_a_mapping_have_the_same_bytes() -> None:
    assert ORDERS.encode(ONE) == ORDERS.encode(GIVEN) == BODY
    assert ORDERS.decode(BODY) == GIVEN
    assert ORDERS.decode(BODY, Order) == ONE
    assert ORDERS.format == "json"
    lines = schema({"type": "object", "required": ["sku"]})
    assert lines.decode(lines.encode(Line("x", 1.5)), Line) == Line("x", 1.5)


def test_the_bytes_are_those_of_confluent_behind_its_frame() -> None:
    text = json.dumps(Order.model_json_schema())
    serializer = JSONSerializer(text, SchemaRegistryClient.new_client({"url": "mock://json"}))
    framed = serializer(GIVEN, SerializationContext("orders", MessageField.VALUE))
    assert framed is not None
    assert ORDERS.encode(ONE) == framed[5:]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({**GIVEN, "cents": "5"}, "cents: '5' is not of type 'integer'"),
        ({**GIVEN, "items": [{"sku": 5, "price": 1}]}, r"items\[0\].sku: 5 is not of type 'string'"),
        ({"id": "a"}, "'cents' is a required property"),
        ({**GIVEN, "cents": float("nan")}, "cents: "),
        ({**GIVEN, "note": object()}, "isn't JSON"),
        ({**GIVEN, "id": "\ud800"}, "isn't JSON"),
        (5, "not of type 'object'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_path(value: object, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        ORDERS.encode(value)


def test_a_body_is_checked_by_the_schema_of_its_reader() -> None:
    strict = schema({"type": "object", "additionalProperties": False, "properties": {"id": {}}})
    assert strict.decode(b'{"id":1}') == {"id": 1}
    assert strict.decode(BODY, None, ORDERS) == GIVEN
    with pytest.raises(SchemaError, match="Additional properties"):
        ORDERS.decode(BODY, None, strict)
    with pytest.raises(SchemaError, match="format avro"):
        ORDERS.decode(BODY, None, parse_schema("avro", '"int"'))


def test_a_body_that_does_not_fit_the_kind_is_refused_with_the_path() -> None:
    loose = schema(True)
    with pytest.raises(SchemaError, match=r"at: Field required; items\[0\].price: Field required"):
        loose.decode(b'{"id":"a","cents":5,"items":[{"sku":"x"}]}', Order)


def test_schemas_refer_to_each_other_and_nothing_is_fetched() -> None:
    order = {"type": "object", "properties": {"item": {"$ref": "item.json"}}}
    item = {"$ref": "unit.json"}
    codec = schema(order, {"item.json": json.dumps(item), "unit.json": '{"type": "integer"}'})
    assert codec.decode(b'{"item":5}') == {"item": 5}
    with pytest.raises(SchemaError, match="item: 'x' is not of type 'integer'"):
        codec.decode(b'{"item":"x"}')
    with pytest.raises(SchemaError, match=r"other\.json"):
        schema(order, {"item.json": '{"$ref": "other.json"}'})
    with pytest.raises(SchemaError, match="http://localhost"):
        schema({"properties": {"a": {"$ref": "http://localhost/a.json"}}})


def test_a_schema_of_an_older_draft_may_lack_its_name() -> None:
    pair = schema({"items": [{"type": "integer"}, {"type": "string"}]})
    assert pair.decode(b'[1,"a"]') == [1, "a"]
    with pytest.raises(SchemaError, match=r"\[1\]"):
        pair.decode(b"[1,2]")
    newer = schema({"prefixItems": [{"type": "integer"}]})
    with pytest.raises(SchemaError, match=r"\[0\]"):
        newer.decode(b'["a"]')
    named = schema({"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"})
    assert named.decode(b"5") == 5


LOOPS = {"properties": {"left": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("5", "neither an object nor a boolean"),
        ('{"type": 5}', "not a JSON Schema"),
        ('{"$schema": "http://json-schema.org/draft-07/schema#", "type": 5}', "not a JSON Schema"),
        ('{"$ref": "#"}', "not a JSON Schema: Recursion"),
        ('{"pattern": "(?=a)"}', "linear time"),
        ('{"patternProperties": {"(a)\\\\1": true}}', "linear time"),
        (
            '{"anyOf": [{"patternProperties": {}, "unevaluatedProperties": false}]}',
            "use additionalProperties",
        ),
        ("[" * 1000, "not JSON"),
    ],
)
def test_schemas_that_are_wrong_or_dangerous_are_refused(text: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        parse_schema("json", text)


def nested(depth: int) -> bytes:
    return b'{"x":1,"left":' * depth + b"{}" + b"}" * depth


BODIES: dict[str, tuple[object, bytes]] = {
    "nothing": (True, b""),
    "half": (True, BODY[:-3]),
    "too long": (True, BODY + b"x"),
    "no UTF-8": (True, b'"\xff"'),
    "half a character": (True, b'"\\ud800"'),
    "nested lists": (True, b"[" * 100_000),
    "nested and closed lists": (True, b"[" * 500 + b"]" * 500),
    "nested objects": (True, b'{"a":' * 100_000),
    "a number of a megabyte": (True, b"9" * 1_000_000),
    "not a number": (True, b"NaN"),
    "infinity": (True, b"[Infinity]"),
    "empty maps": (True, b"[{}" + b",{}" * MOST_VALUES + b"]"),
    "many names": (True, b"{" + b",".join(b'"%d":0' % number for number in range(MOST_VALUES)) + b"}"),
    "too many bytes": (True, b'"' + b"a" * MOST_BYTES + b'"'),
    "branches without end": (LOOPS, nested(60)),
    "a pattern that tries all": ({"pattern": "^(a+)+$"}, json.dumps("a" * 100_000 + "!").encode()),
    "a pattern from each place": ({"pattern": "a*b"}, json.dumps("a" * 1_000_000).encode()),
    "a pattern of names": (
        {"patternProperties": {"^(a+)+$": True}, "additionalProperties": False},
        json.dumps({"a" * 100_000 + "!": 1}).encode(),
    ),
    "items that hash alike": (
        {"uniqueItems": True},
        json.dumps([{"a": [number]} for number in range(20_000)] + [{"a": [5]}]).encode(),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused_soon(name: str) -> None:
    text, body = BODIES[name]
    codec = schema(text)
    begin = time.process_time()
    with pytest.raises(SchemaError) as raised:
        codec.decode(body)
    assert time.process_time() - begin < 20
    assert len(raised.value.message) <= 300


def test_many_items_by_reference_are_checked() -> None:
    codec = schema(
        {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "integer"}}}
    )
    assert codec.decode(json.dumps([1] * 10_000).encode()) == [1] * 10_000


def test_commas_in_text_are_not_counted() -> None:
    body = json.dumps(["," * MOST_VALUES, '\\",'] * 2).encode()
    assert schema(True).decode(body) == ["," * MOST_VALUES, '\\",'] * 2


def test_a_body_that_readers_would_refuse_is_not_written() -> None:
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(SchemaError, match="Maximum serialization depth"):
        schema(True).encode(deep)
    with pytest.raises(SchemaError, match="more than"):
        schema(True).encode([0] * (MOST_VALUES + 1))


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True, "1", None, [1], [True]], True),
        ([1, 1.0], False),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([{"a": 1}, {"a": True}], True),
        ([[1, 2], [2, 1]], True),
        ([], True),
    ],
)
def test_items_are_unique_as_json_schema_says(items: list[object], unique: bool) -> None:
    codec = schema({"uniqueItems": True})
    if unique:
        assert codec.decode(json.dumps(items).encode()) == items
    else:
        with pytest.raises(SchemaError, match="unique"):
            codec.decode(json.dumps(items).encode())
    assert schema({"uniqueItems": False}).decode(b"[1,1]") == [1, 1]


def test_names_by_pattern_and_further_names_are_checked() -> None:
    codec = schema(
        {
            "properties": {"id": {"type": "string"}},
            "patternProperties": {"^x-": {"type": "integer"}},
            "additionalProperties": {"type": "boolean"},
        }
    )
    assert codec.decode(b'{"id":"a","x-1":1,"other":true}') == {"id": "a", "x-1": 1, "other": True}
    for body, path in ((b'{"x-1":"a"}', "x-1: "), (b'{"other":1}', "other: "), (b'{"id":1}', "id: ")):
        with pytest.raises(SchemaError, match=path):
            codec.decode(body)
