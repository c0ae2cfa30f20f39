"""Protobuf: messages, mappings and models as bytes, and no body crashes or outgrows its decoder."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, duration_pb2, message_factory, timestamp_pb2
from pydantic import BaseModel

from kafka_pubsub import InvalidArgument, SchemaError
from kafka_pubsub.records.limits import MOST_BYTES, MOST_VALUES
from kafka_pubsub.records.message_index import join_index, path_of_message, split_index
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.records.protobuf import ProtobufCodec, text_of_message

TEXT = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
enum Colour { RED = 0; BLUE = 1; }
message Item { string sku = 1; double price = 2; optional int32 count = 3; Item part = 4;
  message Unit { bool whole = 1; } }
message Order {
  string id = 1; int64 cents = 2; repeated Item items = 3; map<string, int32> counts = 4;
  oneof payment { string card = 5; uint32 cash = 6; }
  Colour colour = 7; google.protobuf.Timestamp at = 8; google.protobuf.Duration wait = 9; bytes raw = 10;
  repeated int32 numbers = 11; map<int32, Item> by_number = 12; google.protobuf.Struct extra = 13;
  google.protobuf.Int64Value maybe = 14; bool paid = 15; repeated Colour colours = 16; float ratio = 17;
}
"""
ITEM = {"sku": "x", "price": 1.5, "count": None, "part": None}
FULL: dict[str, Any] = {
    "id": "ä",
    "cents": -5,
    "items": [ITEM, {**ITEM, "count": 0, "part": ITEM}],
    "counts": {"a": 1},
    "card": "visa",
    "cash": None,
    "colour": "BLUE",
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "wait": timedelta(seconds=5),
    "raw": b"\xff",
    "numbers": [1, -2],
    "by_number": {7: ITEM},
    "extra": {"a": [1.0, None, {"b": "c"}]},
    "maybe": 0,
    "paid": True,
    "colours": ["BLUE", "RED"],
    "ratio": 0.5,
}
EMPTY: dict[str, Any] = {
    "id": "",
    "cents": 0,
    "items": [],
    "counts": {},
    "card": None,
    "cash": None,
    "colour": "RED",
    "at": None,
    "wait": None,
    "raw": b"",
    "numbers": [],
    "by_number": {},
    "extra": None,
    "maybe": None,
    "paid": False,
    "colours": [],
    "ratio": 0.0,
}


def protobuf(text: str, references: dict[str, str] | None = None) -> ProtobufCodec:
    codec = parse_schema("protobuf", text, references or {})
    assert isinstance(codec, ProtobufCodec)
    return codec


@pytest.fixture(scope="module")
def items() -> ProtobufCodec:
    return protobuf(TEXT)


@pytest.fixture(scope="module")
def orders(items: ProtobufCodec) -> ProtobufCodec:
    return items.at([1])


@pytest.fixture(scope="module")
def order_class(orders: ProtobufCodec) -> Any:
    """A class as protoc generates it."""
    return type(orders._parsed(orders._class, b""))


def test_a_value_comes_back_as_it_was(orders: ProtobufCodec) -> None:
    assert orders.decode(orders.encode(FULL)) == FULL
    assert orders.decode(orders.encode({})) == orders.decode(b"") == EMPTY
    assert orders.format == "protobuf"
    assert orders.text == TEXT


def test_a_generated_message_is_written_and_read(orders: ProtobufCodec, order_class: Any) -> None:
    body = orders.encode(FULL)
    message = orders.decode(body, order_class)
    assert isinstance(message, order_class)
    assert message.card == "visa"
    assert orders.encode(message) == body


def test_the_bytes_are_those_of_confluent_behind_its_frame(orders: ProtobufCodec, order_class: Any) -> None:
    kinds = {orders: order_class}
    for path in ([0], [0, 0]):
        codec = orders.at(path)
        kinds[codec] = type(codec._parsed(codec._class, b""))
    for codec, kind in kinds.items():
        client = SchemaRegistryClient.new_client({"url": "mock://protobuf"})
        serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        message = kind.FromString(orders.encode(FULL)) if codec is orders else kind()
        framed = serializer(message, SerializationContext("orders", MessageField.VALUE))
        assert framed is not None
        assert join_index(codec.path) + codec.encode(message) == framed[5:]
        assert split_index(framed[5:]) == (path_of_message(kind.DESCRIPTOR), codec.encode(message))


def test_a_model_is_written_and_read(orders: ProtobufCodec) -> None:
    class Paint(StrEnum):
        BLUE = "BLUE"

    class Item(BaseModel):
        sku: str
        price: float

    class Order(BaseModel):
        id: str
        items: list[Item]
        colour: Paint
        at: datetime

    one = Order(
        id="a", items=[Item(sku="x", price=1)], colour=Paint.BLUE, at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert orders.decode(orders.encode(one), Order) == one
    with pytest.raises(SchemaError, match="at: "):
        orders.decode(b"", Order)
    with pytest.raises(InvalidArgument, match="pydantic can check"):
        orders.decode(b"", type("Odd", (), {}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": 5}, "id: should be str"),
        ({"id": b"a"}, "id: should be str"),
        ({"id": "\ud800"}, "id: "),
        ({"cents": "5"}, "cents: "),
        ({"cents": True}, "cents: should be a number"),
        ({"cents": 1.5}, "cents: "),
        ({"cents": 2**63}, "cents: "),
        ({"items": {}}, "items: should be a list"),
        ({"items": [ITEM, {"price": "x"}]}, r"items\[1\].price: "),
        ({"items": [{"part": {"other": 1}}]}, r"items\[0\].part.other: shop.Item has no such field"),
        ({"items": [5]}, r"items\[0\]: should be a mapping"),
        ({"counts": [1]}, "counts: should be a mapping"),
        ({"counts": {"a": "x"}}, "counts.a: "),
        ({"counts": {1: 1}}, "counts.1: should be str"),
        ({"by_number": {"x": ITEM}}, "by_number.x: "),
        ({"by_number": {1: {"sku": 1}}}, "by_number.1.sku: "),
        ({"cash": 5}, "cash: card is set too"),
        ({"colour": "GREEN"}, "colour: shop.Colour has no value"),
        ({"at": 5}, "at: should be a datetime"),
        ({"wait": 5}, "wait: should be a timedelta"),
        ({"raw": "x"}, "raw: should be bytes"),
        ({"numbers": ["x"]}, r"numbers\[0\]: "),
        ({"numbers": "12"}, "numbers: should be a list"),
        ({"extra": 5}, "extra: "),
        ({"maybe": "x"}, "maybe.*: "),
        ({"ratio": 1e300}, "ratio: too large for a float"),
        ({"paid": 1}, "paid: should be bool"),
        ({"other": 1}, "other: shop.Order has no such field"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_path(
    orders: ProtobufCodec, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(SchemaError, match=f"^{said}"):
        orders.encode({**FULL, **change})


def test_another_message_is_refused(items: ProtobufCodec, orders: ProtobufCodec, order_class: Any) -> None:
    assert (items.message, orders.message, items.at([0, 0]).message) == (
        "shop.Item",
        "shop.Order",
        "shop.Item.Unit",
    )
    with pytest.raises(SchemaError, match=r"is shop\.Order, and the schema's is shop\.Item"):
        items.encode(order_class())
    with pytest.raises(SchemaError, match=r"is shop\.Order, and the schema's is shop\.Item"):
        items.decode(b"", order_class)
    for path in ([2], [0, 1], [-1], []):
        with pytest.raises(SchemaError, match="no message"):
            items.at(path)
    with pytest.raises(SchemaError, match="mapping"):
        items.encode(5)


def test_an_enum_without_a_name_is_a_number(orders: ProtobufCodec) -> None:
    assert orders.decode(orders.encode({"colour": 9})) == {**EMPTY, "colour": 9}


def test_a_schema_is_text_or_a_descriptor_in_base64(orders: ProtobufCodec, order_class: Any) -> None:
    coded = protobuf(text_of_message(order_class)).at([1])
    body = orders.encode(FULL)
    assert coded.encode(FULL) == body
    assert coded.decode(body) == FULL
    assert orders.decode(body, None, coded) == FULL


def test_a_body_is_read_by_a_later_schema(orders: ProtobufCodec) -> None:
    later = protobuf(
        'syntax = "proto3"; package shop; message Order { string number = 1; string note = 99; }'
    )
    assert orders.decode(orders.encode({"id": "a"}), None, later) == {"number": "a", "note": ""}
    with pytest.raises(SchemaError, match=r"no message shop\.Item"):
        orders.at([0]).decode(b"", None, later)
    with pytest.raises(SchemaError, match="format json"):
        orders.decode(b"", None, parse_schema("json", "{}"))


def test_schemas_import_each_other() -> None:
    files = {
        "shop/item.proto": 'syntax = "proto3"; import "unit.proto"; message Item { Unit unit = 1; }',
        "unit.proto": 'syntax = "proto3"; message Unit { int32 cents = 1; }',
    }
    text = 'syntax = "proto3"; import "shop/item.proto"; message Order { Item item = 1; }'
    codec = protobuf(text, files)
    value = {"item": {"unit": {"cents": 5}}}
    body = codec.encode(value)
    assert codec.decode(body) == value
    kinds = {
        name: base64.b64encode(codec._file.pool.FindFileByName(name).serialized_pb).decode()
        for name in (*files, "schema.proto")
    }
    coded = protobuf(kinds.pop("schema.proto"), kinds)
    assert coded.decode(body) == value
    with pytest.raises(SchemaError, match=r"unit\.proto"):
        protobuf(coded.text, {"shop/item.proto": kinds["shop/item.proto"]})
    with pytest.raises(SchemaError, match="give both alike"):
        protobuf(text, kinds)


@pytest.mark.parametrize("name", ["/tmp/a.proto", "../a.proto", "a.py", "schema.proto", ""])
def test_a_reference_stays_in_its_folder(name: str) -> None:
    with pytest.raises(SchemaError, match=r"name of a \.proto file|import"):
        protobuf('syntax = "proto3"; message A {}', {name: 'syntax = "proto3";'})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no message"),
        ('syntax = "proto3"; enum A { B = 0; }', "no message"),
        ('syntax = "proto3"; message {}', r"schema\.proto:1:28: Expected message name"),
        ('syntax = "proto3"; import "other.proto"; message A {}', r"other\.proto"),
        ('syntax = "proto2"; message A { optional group B = 1 { optional int32 c = 2; } }', "is a group"),
        ("aGVsbG8=", "FileDescriptorProto"),
        ("abc", "FileDescriptorProto"),
    ],
)
def test_schemas_that_are_wrong_or_dangerous_are_refused(text: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        protobuf(text)


def test_a_schema_in_base64_that_imports_itself_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["a.proto"], syntax="proto3")
    with pytest.raises(SchemaError, match="itself"):
        protobuf(base64.b64encode(file.SerializeToString()).decode())


def nested(depth: int) -> bytes:
    body = b""
    for _ in range(depth):
        size, length = len(body), b""
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        body = b"\x22" + length + bytes([size]) + body
    return body


FAR = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
BODIES: dict[str, tuple[int, bytes]] = {
    "no field": (1, b"\xff"),
    "half a field": (1, b"\x0a\x05abc"),
    "no UTF-8": (1, b"\x0a\x01\xff"),
    "a text of no end": (1, b"\x0a" + FAR),
    "texts of no end": (1, (b"\x1a" + FAR) * 200_000),
    "nested": (0, nested(101)),
    "nested deeper": (0, nested(50_000)),
    "empty messages": (1, b"\x1a\x00" * 1_000_000),
    "empty messages of a map": (1, b"\x62\x00" * 1_000_000),
    "many numbers": (1, b"\x5a\xc0\x84\x3d" + bytes(1_000_000)),
    "too many bytes": (1, b"\x0a" + bytes(MOST_BYTES)),
    "a time of no calendar": (1, b"\x42\x0a\x08" + FAR),
    "a group": (1, b"\x0b" * 1000),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused_soon(items: ProtobufCodec, name: str) -> None:
    number, body = BODIES[name]
    codec = items.at([number])
    begin = time.process_time()
    with pytest.raises(SchemaError):
        codec.decode(body)
    assert time.process_time() - begin < 10


def test_a_body_that_readers_would_refuse_is_not_written(orders: ProtobufCodec) -> None:
    with pytest.raises(SchemaError, match="more than"):
        orders.encode({"numbers": [1] * (MOST_VALUES + 1)})
    fitting = {"numbers": [2**31 - 1] * (MOST_VALUES // 4)}
    assert orders.decode(orders.encode(fitting)) == {**EMPTY, **fitting}


def test_a_time_without_a_zone_is_the_machine_s(orders: ProtobufCodec) -> None:
    local = datetime(2026, 1, 2)  # noqa: DTZ001
    assert orders.decode(orders.encode({"at": local})) == {**EMPTY, "at": local.astimezone(UTC)}
    assert timestamp_pb2.Timestamp.DESCRIPTOR.full_name == "google.protobuf.Timestamp"
    assert duration_pb2.Duration.DESCRIPTOR.full_name == "google.protobuf.Duration"


def test_a_message_of_protobuf_s_own_has_its_class() -> None:
    codec = protobuf(text_of_message(timestamp_pb2.Timestamp))
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert codec.decode(codec.encode(now)) == now
    kind = message_factory.GetMessageClass(timestamp_pb2.Timestamp.DESCRIPTOR)
    assert codec.decode(codec.encode(now), kind) == kind(seconds=int(now.timestamp()))
