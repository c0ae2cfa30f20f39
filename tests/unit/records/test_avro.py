"""Avro: values of models fit or name the field that doesn't, and no body crashes or outgrows its decoder."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel, Field

from kafka_pubsub import SchemaError
from kafka_pubsub.records.codec import Codec
from kafka_pubsub.records.limits import MOST_BYTES, MOST_VALUES
from kafka_pubsub.records.parsing import parse_schema


class Colour(Enum):
    RED = "RED"
    BLUE = "BLUE"


class Item(BaseModel):
    sku: str
    price: float


class Order(BaseModel):
    id: str
    cents: int
    colour: Colour
    items: list[Item]
    note: str | None = None


@dataclass
class Line:
    sku: str
    price: float


@dataclass
class Sheet:
    id: str
    cents: int
    colour: Colour
    items: list[Line]
    note: str | None = None


def record(name: str = "R", /, **types: Any) -> dict[str, Any]:
    """A record; a type in a list of one has the default that stands beside it."""
    return {"type": "record", "name": name, "fields": [field(each, kind) for each, kind in types.items()]}


def field(name: str, kind: Any) -> dict[str, Any]:
    if isinstance(kind, tuple):
        return {"name": name, "type": kind[0], "default": kind[1]}
    return {"name": name, "type": kind}


def avro(schema: Any, references: dict[str, str] | None = None) -> Codec:
    return parse_schema("avro", json.dumps(schema), references or {})


ORDER = record(
    "Order",
    id="string",
    cents="long",
    colour={"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]},
    items={"type": "array", "items": record("Item", sku="string", price="double")},
    note=(["null", "string"], None),
)
GIVEN: dict[str, Any] = {
    "id": "a",
    "cents": 5,
    "colour": "RED",
    "items": [{"sku": "x", "price": 1.5}, {"sku": "y", "price": 2.5}],
    "note": None,
}
ONE = Order(id="a", cents=5, colour=Colour.RED, items=[Item(sku="x", price=1.5), Item(sku="y", price=2.5)])


def test_a_model_a_dataclass_and_a_mapping_have_the_same_bytes() -> None:
    codec = avro(ORDER)
    sheet = Sheet("a", 5, Colour.RED, [Line("x", 1.5), Line("y", 2.5)])
    mixed = MappingProxyType({**GIVEN, "items": (Item(sku="x", price=1.5), Line("y", 2.5))})
    bodies = {codec.encode(each) for each in (ONE, sheet, GIVEN, mixed)}
    (body,) = bodies
    assert codec.decode(body) == GIVEN
    assert codec.decode(body, Order) == ONE
    assert codec.decode(body, Sheet) == sheet
    assert codec.format == "avro"
    assert json.loads(codec.text) == ORDER


def test_the_bytes_are_those_of_confluent_behind_its_frame() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://avro"})
    serializer = AvroSerializer(client, json.dumps(ORDER))
    framed = serializer(GIVEN, SerializationContext("orders", MessageField.VALUE))
    assert framed is not None
    assert avro(ORDER).encode(ONE) == framed[5:]


def test_names_in_bodies_are_aliases() -> None:
    class Aliased(BaseModel):
        own: int = Field(alias="theirs")

    codec = avro(record(theirs="int"))
    body = codec.encode(Aliased(theirs=3))
    assert codec.decode(body) == {"theirs": 3}
    assert codec.decode(body, Aliased) == Aliased(theirs=3)


WRONG: dict[str, tuple[Any, str]] = {
    "a text for a number": ({**GIVEN, "cents": "5"}, "cents: Input should be a valid integer"),
    "a fraction": ({**GIVEN, "cents": 1.5}, "cents: "),
    "a boolean for a number": ({**GIVEN, "cents": True}, "cents: "),
    "a number beyond a long": ({**GIVEN, "cents": 2**63}, "cents: "),
    "deep inside": (
        {**GIVEN, "items": [GIVEN["items"][0], {"sku": "y", "price": "x"}]},
        r"items\[1\].price: ",
    ),
    "a field that is missing": ({**GIVEN, "items": [{"sku": "y"}]}, r"items\[0\].price: Field required"),
    "a field too many": ({**GIVEN, "other": 1}, "other: Extra inputs"),
    "no symbol": ({**GIVEN, "colour": "GREEN"}, "colour: "),
    "no list": ({**GIVEN, "items": "xy"}, "items: "),
    "none": ({**GIVEN, "id": None}, "id: "),
    "bytes for text": ({**GIVEN, "id": b"a"}, "id: "),
    "half a character": ({**GIVEN, "id": "\ud800"}, "id: "),
    "a number alone": (5, "valid dictionary"),
    "nothing": (None, "valid dictionary"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_does_not_fit_is_refused_with_the_path(name: str) -> None:
    value, said = WRONG[name]
    with pytest.raises(SchemaError, match=said):
        avro(ORDER).encode(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", "no"),
        ("boolean", 1),
        ("int", 2**31),
        ("float", 1e300),
        ("double", "1"),
        ("bytes", "text"),
        ("null", 1),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc"),
        ({"type": "map", "values": "int"}, {1: 1}),
        ({"type": "map", "values": "int"}, [1]),
        (["null", "int", "string"], 1.5),
        ({"type": "int", "logicalType": "date"}, "2026-01-01"),
        ({"type": "string", "logicalType": "uuid"}, "x"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("123.45")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("1.234")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("1E+1000000")),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_type_takes_no_value_of_another(kind: Any, value: Any) -> None:
    with pytest.raises(SchemaError, match=r"a(\[1\])?: "):
        avro(record(a=kind)).encode({"a": value})


def test_an_error_names_three_fields_and_counts_the_others() -> None:
    codec = avro(record(a="int", b="int", c="int", d="int", e="int"))
    with pytest.raises(SchemaError, match=r"a: .*; b: .*; c: .*; and 2 more"):
        codec.encode({})


LOGICAL: dict[str, tuple[Any, object]] = {
    "millis": ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, datetime(2026, 1, 2, 3, 4, 5, 6, UTC)),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, datetime(1955, 1, 2, 3, 4, 5, 6)),  # noqa: DTZ001
    "date": ({"type": "int", "logicalType": "date"}, date(1900, 1, 2)),
    "time": ({"type": "int", "logicalType": "time-millis"}, clock_time(3, 4, 5, 6000)),
    "uuid": ({"type": "string", "logicalType": "uuid"}, UUID(int=5)),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("-12.34")),
    "fixed decimal": (
        {"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 3},
        Decimal("-123.450"),
    ),
    "many digits": (
        {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 30},
        Decimal("123456789012345678901234567890.123456789012345678901234567891"),
    ),
    "unknown": ({"type": "long", "logicalType": "unheard-of"}, 5),
    "union": (
        ["null", {"type": "long", "logicalType": "timestamp-millis"}, "string"],
        datetime(2026, 1, 1, tzinfo=UTC),
    ),
}


@pytest.mark.parametrize("name", LOGICAL)
def test_logical_types_come_back_as_they_were(name: str) -> None:
    kind, value = LOGICAL[name]
    again = "D" if name == "fixed decimal" else kind
    codec = avro(record(a=kind, b={"type": "array", "items": again}))
    assert codec.decode(codec.encode({"a": value, "b": [value]})) == {"a": value, "b": [value]}


def test_threads_do_not_share_the_digits_of_decimals() -> None:
    many = Decimal("1234567890.1234567890")
    wide = avro({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 10})
    narrow = avro({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1})
    wide_body, narrow_body = wide.encode(many), narrow.encode(Decimal("12.3"))
    end, wrong = time.monotonic() + 0.5, list[object]()

    def read() -> None:
        while time.monotonic() < end and not wrong:
            narrow.decode(narrow_body)
            found = wide.decode(wide_body)
            if found != many:
                wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_a_missing_field_has_its_default() -> None:
    kinds = {
        "number": ("int", 3),
        "raw": ("bytes", "\u00ff"),
        "part": ({"type": "fixed", "name": "F", "size": 1}, "\u00fe"),
        "time": ({"type": "long", "logicalType": "timestamp-millis"}, 1000),
        "some": ({"type": "array", "items": "string"}, ["x"]),
        "maybe": (["null", "bytes"], None),
        "either": (["bytes", "null"], "\u00ff"),
        "inner": (record("I", b=("bytes", "\u00fd"), c="int"), {"c": 4}),
        "by_name": ({"type": "map", "values": "bytes"}, {"k": "\u00fc"}),
    }
    decoded = {
        "number": 3,
        "raw": b"\xff",
        "part": b"\xfe",
        "time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "some": ["x"],
        "maybe": None,
        "either": b"\xff",
        "inner": {"b": b"\xfd", "c": 4},
        "by_name": {"k": b"\xfc"},
    }
    writer, reader = avro(record(id="int")), avro(record(id="int", **kinds))
    assert reader.decode(reader.encode({"id": 1})) == {"id": 1, **decoded}
    body = writer.encode({"id": 1})
    first: Any = writer.decode(body, None, reader)
    assert first == {"id": 1, **decoded}
    first["some"].append("changed")
    assert writer.decode(body, None, reader) == {"id": 1, **decoded}


def test_a_default_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SchemaError, match="default"):
        avro(record(a=({"type": "fixed", "name": "F", "size": 3}, "x")))


def test_a_body_is_resolved_to_the_schema_of_its_reader() -> None:
    old = avro(record("Order", id="string", cents="int", gone="string"))
    new = avro(record("Order", id="string", cents="long", note=(["null", "string"], None)))
    body = old.encode({"id": "a", "cents": 5, "gone": "x"})
    assert old.decode(body, None, new) == {"id": "a", "cents": 5, "note": None}
    assert old.decode(body, None, old) == {"id": "a", "cents": 5, "gone": "x"}
    assert old.decode(body, None, parse_schema("avro", old.text)) == {"id": "a", "cents": 5, "gone": "x"}
    with pytest.raises(SchemaError, match=r"cents: long can't be read as int; gone: bodies don't have it"):
        new.decode(new.encode({"id": "a", "cents": 5}), None, old)
    with pytest.raises(SchemaError, match="gone: bodies don't have it, and it has no default"):
        avro(record("Order", id="string", cents="int")).decode(b"\2a\2", None, old)
    with pytest.raises(SchemaError, match="format json"):
        old.decode(body, None, parse_schema("json", "{}"))


def test_a_body_that_does_not_fit_the_kind_is_refused_with_the_path() -> None:
    codec = avro(record(items={"type": "array", "items": record("I", price="string")}))

    class Bill(BaseModel):
        items: list[Item]

    with pytest.raises(SchemaError, match=r"items\[0\].sku: Field required; items\[0\].price: "):
        codec.decode(codec.encode({"items": [{"price": "x"}]}), Bill)


def test_an_error_of_a_model_s_own_is_a_schema_error() -> None:
    class Odd(BaseModel):
        a: int

        def model_post_init(self, context: object) -> None:
            raise KeyError("odd")

    with pytest.raises(SchemaError, match="odd"):
        avro(record(a="int")).decode(b"\x02", Odd)


def test_schemas_refer_to_each_other_in_any_order() -> None:
    text = {"type": "record", "name": "Order", "namespace": "shop", "fields": [field("item", "shop.Item")]}
    item = {"type": "record", "name": "Item", "namespace": "shop", "fields": [field("unit", "shop.Unit")]}
    unit = {"type": "record", "name": "Unit", "namespace": "shop", "fields": [field("cents", "int")]}
    codec = avro(text, {"shop.Item": json.dumps(item), "shop.Unit": json.dumps(unit)})
    value = {"item": {"unit": {"cents": 4}}}
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(SchemaError, match=r"shop\.Unit"):
        avro(text, {"shop.Item": json.dumps(item)})


@pytest.mark.parametrize(
    "schema", ["int", ["null", "string"], {"type": "array", "items": "int"}, ORDER["fields"][2]["type"]]
)
def test_a_schema_need_not_be_a_record(schema: Any) -> None:
    codec = avro(schema)
    value: Any = {"int": 5, "list": None, "array": [1], "enum": "RED"}[
        schema if isinstance(schema, str) else "list" if isinstance(schema, list) else schema["type"]
    ]
    assert codec.decode(codec.encode(value)) == value


def test_a_body_that_readers_would_refuse_is_not_written() -> None:
    codec = avro({"type": "array", "items": "int"})
    with pytest.raises(SchemaError, match="more than"):
        codec.encode([0] * (MOST_VALUES + 1))
    with pytest.raises(SchemaError, match="the most are"):
        avro("bytes").encode(bytes(MOST_BYTES))
    fitting = [2**31 - 1] * (MOST_VALUES // 6)
    assert codec.decode(codec.encode(fitting)) == fitting


def varint(number: int) -> bytes:
    number, written = number << 1, b""
    while number > 0x7F:
        written += bytes([number & 0x7F | 0x80])
        number >>= 7
    return written + bytes([number])


WIDE = record("Wide", id="int", **{f"n{number}": "null" for number in range(200)})
TIMES = {
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "int", "logicalType": "time-millis"},
}
BODIES: dict[str, tuple[Any, bytes]] = {
    "nothing": (ORDER, b""),
    "half": (ORDER, avro(ORDER).encode(GIVEN)[:-3]),
    "too long": (ORDER, avro(ORDER).encode(GIVEN) + b"\0"),
    "a string of a terabyte": ("string", varint(2**40) + b"x"),
    "a string of no size": ("string", b"\x01"),
    "no UTF-8": ("string", b"\x02\xff"),
    "an array of a terabyte": ({"type": "array", "items": "int"}, varint(2**40) + b"\0\0"),
    "an array of no size": ({"type": "array", "items": "int"}, varint(2**62) + varint(0)),
    "maps of nothing": (
        {"type": "array", "items": {"type": "map", "values": "int"}},
        varint(2_000_000) + bytes(2_000_001),
    ),
    "items of little": ({"type": "array", "items": WIDE}, varint(50_000) + bytes(50_001)),
    "a symbol too many": (ORDER["fields"][2]["type"], varint(7)),
    "a branch too many": (["null", "int"], varint(7)),
    **{
        name: (
            kind,
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"[: 9 if name == "timestamp" else 4]
            + (b"" if name == "timestamp" else b"\x0f"),
        )
        for name, kind in TIMES.items()
    },
    "no UUID": ({"type": "string", "logicalType": "uuid"}, b"\x04ab"),
    "a decimal of a megabyte": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        varint(1_000_000) + b"\x7f" * 1_000_000,
    ),
    "too many bytes": ("bytes", varint(MOST_BYTES) + bytes(MOST_BYTES)),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused_soon(name: str) -> None:
    schema, body = BODIES[name]
    codec = avro(schema)
    begin = time.process_time()
    with pytest.raises(SchemaError):
        codec.decode(body)
    assert time.process_time() - begin < 5


def test_more_values_by_a_reader_s_defaults_are_counted() -> None:
    writer = avro({"type": "array", "items": record("Wide", id="int")})
    wide = {
        **WIDE,
        "fields": [WIDE["fields"][0], *({**each, "default": None} for each in WIDE["fields"][1:])],
    }
    reader = avro({"type": "array", "items": wide})
    body = varint(50_000) + bytes(50_001)
    assert len(writer.decode(body)) == 50_000  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="more than"):
        writer.decode(body, None, reader)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("shop.Item", {"sku": "a"}),
        (["null", "shop.Item"], {"sku": "a"}),
        (["shop.Item", "shop.Colour"], "RED"),
        ({"type": "array", "items": "shop.Item"}, [{"sku": "a"}, {"sku": "b"}]),
        ({"type": "map", "values": ["null", "shop.Item"]}, {"a": {"sku": "a"}, "b": None}),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_a_schema_may_be_nothing_but_names_of_its_references(
    schema: Any, value: object, *, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "sku", "type": "string"}]}
    colour = {"type": "enum", "name": "shop.Colour", "symbols": ["RED", "BLUE"]}
    codec = avro(schema, {"item": json.dumps(item), "colour": json.dumps(colour)})
    if is_large:
        # Large bodies are fastavro's.
        monkeypatch.setattr(codec, "_harmless", 0)
    assert codec.decode(codec.encode(value)) == value
