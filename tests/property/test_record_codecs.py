"""Every value that fits a schema comes back from its body: schemas and values as Hypothesis draws them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.records.message_index import join_index, split_index
from kafka_pubsub.records.parsing import parse_schema

#: A schema and a strategy for its values.
Typed = tuple[Any, st.SearchStrategy[Any]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda unscaled: Decimal(f"{unscaled}E-{scale}"))


def _times(step: timedelta) -> st.SearchStrategy[datetime]:
    most = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // step
    return st.integers((datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // step, most).map(
        lambda count: _EPOCH + count * step
    )


AVRO_SCALARS: dict[str, Typed] = {
    "null": ("null", st.none()),
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ("string", _TEXTS),
    "bytes": ("bytes", st.binary()),
    "millis": ({"type": "long", "logicalType": "timestamp-millis"}, _times(timedelta(milliseconds=1))),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, _times(timedelta(microseconds=1))),
    "date": ({"type": "int", "logicalType": "date"}, st.dates()),
    "time": ({"type": "long", "logicalType": "time-micros"}, st.times()),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 7}, _decimals(50, 7)),
}


def _nullable(typed: Typed) -> Typed:
    schema, values = typed
    return (
        (schema, values)
        if schema == "null" or isinstance(schema, list)
        else (["null", schema], st.none() | values)
    )


def _takes_no_bytes(schema: Any) -> bool:
    """Whether each value of the schema is nothing: `null`, or a record of such values."""
    if isinstance(schema, dict) and schema["type"] == "record":
        return all(_takes_no_bytes(field["type"]) for field in schema["fields"])
    return bool(schema == "null")


def _array(typed: Typed) -> Typed:
    # An array of such items is refused.
    schema, values = ("int", st.just(0)) if _takes_no_bytes(typed[0]) else typed
    return {"type": "array", "items": schema}, st.lists(values, max_size=4)


def _map(typed: Typed) -> Typed:
    return {"type": "map", "values": typed[0]}, st.dictionaries(_TEXTS, typed[1], max_size=4)


def _record(parts: list[Typed]) -> Typed:
    fields = [{"name": f"f{number}", "type": schema} for number, (schema, _) in enumerate(parts)]
    values = st.fixed_dictionaries({f"f{number}": each for number, (_, each) in enumerate(parts)})
    # Its name is given when the whole schema is known.
    return {"type": "record", "name": "", "fields": fields}, values


def _grown(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    full = st.lists(inner, min_size=1, max_size=4).map(_record)
    return inner.map(_nullable) | inner.map(_array) | inner.map(_map) | full


AVRO = st.recursive(st.sampled_from(sorted(AVRO_SCALARS)).map(AVRO_SCALARS.__getitem__), _grown, max_leaves=8)


def _named(schema: Any, count: list[int]) -> Any:
    """A copy whose records have different names."""
    if isinstance(schema, list):
        return [_named(each, count) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _named(each, count) for key, each in schema.items()}
    if schema.get("type") == "record":
        count[0] += 1
        copy["name"] = f"R{count[0]}"
    return copy


@given(st.data())
def test_avro_comes_back_as_it_was(data: st.DataObject) -> None:
    schema, values = data.draw(AVRO)
    codec = parse_schema("avro", json.dumps(_named(schema, [0])))
    value = data.draw(values)
    body = codec.encode(value)
    assert codec.decode(body) == value
    assert codec.encode(codec.decode(body)) == body
    assert codec.decode(body, None, parse_schema("avro", codec.text)) == value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_comes_back_as_it_was(value: object) -> None:
    codec = parse_schema("json", "true")
    body = codec.encode(value)
    assert codec.decode(body) == value == json.loads(body)
    assert codec.decode(body, object) == value


PROTOBUF = parse_schema(
    "protobuf",
    """syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/duration.proto";
    enum Colour { RED = 0; BLUE = 1; }
    message Order {
      string text = 1; int64 number = 2; sint32 small = 3; fixed64 large = 4; double real = 5; float short = 6;
      bool yes = 7; bytes raw = 8; Colour colour = 9; optional uint32 maybe = 10; repeated Colour colours = 11;
      map<string, Order> orders = 12; repeated Order more = 13; Order inner = 14;
      google.protobuf.Timestamp at = 15; google.protobuf.Duration wait = 16; map<int32, bytes> parts = 17;
    }""",
)
_COLOURS = st.sampled_from(["RED", "BLUE", 7])
_LEAF: dict[str, st.SearchStrategy[Any]] = {
    "text": _TEXTS,
    "number": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-(2**31), 2**31 - 1),
    "large": st.integers(0, 2**64 - 1),
    "real": st.floats(allow_nan=False),
    "short": st.floats(width=32, allow_nan=False),
    "yes": st.booleans(),
    "raw": st.binary(),
    "colour": _COLOURS,
    "maybe": st.none() | st.integers(0, 2**32 - 1),
    "colours": st.lists(_COLOURS, max_size=3),
    "at": st.none() | _times(timedelta(microseconds=1)),
    "wait": st.none() | st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
    "parts": st.dictionaries(st.integers(-(2**31), 2**31 - 1), st.binary(), max_size=3),
}
_END: dict[str, st.SearchStrategy[Any]] = {"orders": st.just({}), "more": st.just([]), "inner": st.none()}
ORDERS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.fixed_dictionaries({**_LEAF, **_END}),
    lambda inner: st.fixed_dictionaries(
        {
            **_LEAF,
            "orders": st.dictionaries(_TEXTS, inner, max_size=2),
            "more": st.lists(inner, max_size=2),
            "inner": st.none() | inner,
        }
    ),
    max_leaves=4,
)


@given(ORDERS)
def test_protobuf_comes_back_as_it_was(value: dict[str, Any]) -> None:
    assert PROTOBUF.decode(PROTOBUF.encode(value)) == value


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=5), st.binary())
def test_a_path_in_a_frame_comes_back_as_it_was(path: list[int], body: bytes) -> None:
    assert split_index(join_index(path) + body) == (path, body)


def test_dates_and_infinity_are_values_too() -> None:
    codec = parse_schema("avro", json.dumps(["double", {"type": "int", "logicalType": "date"}]))
    for value in (math.inf, date.min, date.max):
        assert codec.decode(codec.encode(value)) == value
