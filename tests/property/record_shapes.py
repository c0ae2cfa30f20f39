"""Random schemas of the three formats, values that fit them, values that don't, and bodies that no codec wrote.

A shape is a schema of no format: `avro`, `json_schema` and `protobuf` write it in theirs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from google.protobuf import descriptor_pb2

from kafka_pubsub.records.codec import Format

__all__ = ["Shape", "bombs", "hostile", "misfit", "random_shape", "text_of", "value_of"]

_COMMON = ("boolean", "long", "double", "string", "enum")
_SCALARS: dict[Format, tuple[str, ...]] = {
    "avro": (
        *(*_COMMON, "int", "float", "bytes", "timestamp"),
        *("null", "nothing", "fixed", "decimal", "fixed-decimal", "date", "uuid"),
    ),
    "json": (*_COMMON, "pattern"),
    "protobuf": (*_COMMON, "int", "float", "bytes", "timestamp"),
}
_SYMBOLS = ("RED", "BLUE", "GREEN")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(eq=False)
class Shape:
    """A type: a scalar, `array` or `map` of the first part, `optional`, or a record with named parts; or `again`."""

    kind: str
    parts: list[Shape] = field(default_factory=list)
    name: str = ""
    #: Of a record that contains itself: the record.
    whole: Shape | None = None


def random_shape(random: Random, format: Format) -> Shape:
    """A record; rarely the record contains itself, or arrays of nothing."""
    counter = iter(range(10**6))
    return _record(random, format, 3, counter, [])


def _record(random: Random, format: Format, depth: int, counter: Any, around: list[Shape]) -> Shape:
    shape = Shape("record", name=f"R{next(counter)}")
    count = random.choice((0, 1, 2, 3, 3, 5, 8, 30)) if around else random.randint(1, 6)
    shape.parts = [_shape(random, format, depth - 1, counter, [*around, shape]) for _ in range(count)]
    return shape


def _shape(
    random: Random, format: Format, depth: int, counter: Any, around: list[Shape], inner: bool = False
) -> Shape:
    chance = random.random()
    if chance < 0.02:
        return (
            Shape("optional", [Shape("again", whole=random.choice(around))])
            if not inner
            else Shape("again", whole=random.choice(around))
        )
    if depth <= 0 or chance < 0.5:
        kind = random.choice(_SCALARS[format])
        return Shape(kind, name=f"T{next(counter)}")
    if chance < 0.62 and not inner:
        return Shape("optional", [_shape(random, format, 0, counter, around, True)])
    if chance < 0.85 and not (inner and format == "protobuf"):
        kind = random.choice(("array", "array", "map"))
        # Protobuf has neither lists of lists nor lists of nothing.
        return Shape(kind, [_shape(random, format, depth - 1, counter, around, True)])
    return _record(random, format, depth, counter, around)


def text_of(shape: Shape, format: Format) -> str:
    """The schema of a shape."""
    if format == "avro":
        return json.dumps(_avro(shape))
    if format == "json":
        defined: dict[str, Any] = {}
        root = _json(shape, defined)
        return json.dumps({**root, "$defs": defined})
    file = descriptor_pb2.FileDescriptorProto(name="shape.proto", package="shapes", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.enum_type.add(name="Colour").value.extend(
        descriptor_pb2.EnumValueDescriptorProto(name=name, number=number)
        for number, name in enumerate(_SYMBOLS)
    )
    _message(shape, file)
    return base64.b64encode(file.SerializeToString()).decode()


_AVRO: dict[str, Any] = {
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 5},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}


def _avro(shape: Shape) -> Any:
    name = shape.name
    if shape.kind == "record":
        fields = [{"name": f"f{number}", "type": _avro(part)} for number, part in enumerate(shape.parts)]
        return {"type": "record", "name": name, "fields": fields}
    if shape.kind in ("array", "map"):
        return {"type": shape.kind, "items" if shape.kind == "array" else "values": _avro(shape.parts[0])}
    if shape.kind == "optional":
        inner = _avro(shape.parts[0])
        return "null" if inner == "null" else ["null", inner]
    if shape.kind == "again":
        assert shape.whole is not None
        return shape.whole.name
    if shape.kind == "enum":
        return {"type": "enum", "name": name, "symbols": _SYMBOLS}
    if shape.kind in ("fixed", "nothing"):
        return {"type": "fixed", "name": name, "size": 3 if shape.kind == "fixed" else 0}
    if shape.kind == "fixed-decimal":
        return {
            "type": "fixed",
            "name": name,
            "size": 8,
            "logicalType": "decimal",
            "precision": 15,
            "scale": 2,
        }
    return _AVRO.get(shape.kind, shape.kind)


def _json(shape: Shape, defined: dict[str, Any]) -> dict[str, Any]:
    if shape.kind == "record":
        names = [f"f{number}" for number in range(len(shape.parts))]
        properties = dict(zip(names, (_json(part, defined) for part in shape.parts), strict=True))
        defined[shape.name] = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "required": names,
        }
        return {"$ref": f"#/$defs/{shape.name}"}
    if shape.kind == "array":
        return {
            "type": "array",
            "items": _json(shape.parts[0], defined),
            "uniqueItems": len(shape.parts[0].name) % 2 == 0,
        }
    if shape.kind == "map":
        return {
            "type": "object",
            "patternProperties": {"^(k+)+$": _json(shape.parts[0], defined)},
            "additionalProperties": False,
        }
    if shape.kind == "optional":
        inner = _json(shape.parts[0], defined)
        # Two ways to the same end: a body that takes both again and again doubles the ways.
        return {"anyOf": [{"type": "null"}, inner, inner]}
    if shape.kind == "again":
        assert shape.whole is not None
        return {"$ref": f"#/$defs/{shape.whole.name}"}
    scalars: dict[str, dict[str, Any]] = {
        "boolean": {"type": "boolean"},
        "long": {"type": "integer"},
        "double": {"type": "number"},
        "string": {"type": "string"},
        "enum": {"enum": list(_SYMBOLS)},
        "pattern": {"type": "string", "pattern": "^(k+)+$"},
    }
    return scalars[shape.kind]


_PROTOBUF = {"boolean": 8, "int": 5, "long": 3, "float": 2, "double": 1, "string": 9, "bytes": 12, "enum": 14}


def _message(shape: Shape, file: descriptor_pb2.FileDescriptorProto) -> None:
    message = file.message_type.add(name=shape.name)
    for number, part in enumerate(shape.parts, 1):
        made = message.field.add(name=f"f{number - 1}", number=number, label=1, json_name=f"f{number - 1}")
        if part.kind == "map":
            entry = message.nested_type.add(name=f"F{number - 1}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=9, label=1)
            _type(part.parts[0], entry.field.add(name="value", number=2, label=1), file)
            made.label, made.type, made.type_name = 3, 11, f".shapes.{shape.name}.{entry.name}"
        elif part.kind == "array":
            made.label = 3
            _type(part.parts[0], made, file)
        elif part.kind == "optional":
            _type(part.parts[0], made, file)
            if made.type != 11:
                made.proto3_optional = True
                made.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_f{number - 1}")
        else:
            _type(part, made, file)


def _type(shape: Shape, made: Any, file: descriptor_pb2.FileDescriptorProto) -> None:
    if shape.kind in ("record", "again", "timestamp"):
        made.type = 11
        whole = shape if shape.whole is None else shape.whole
        made.type_name = (
            ".google.protobuf.Timestamp" if shape.kind == "timestamp" else f".shapes.{whole.name}"
        )
        if shape.kind == "record":
            _message(shape, file)
        return
    made.type = _PROTOBUF[shape.kind]
    if shape.kind == "enum":
        made.type_name = ".shapes.Colour"


def value_of(shape: Shape, random: Random, format: Format, depth: int = 0) -> Any:
    """A value that fits a shape."""
    kind = shape.kind
    if kind == "record":
        return {
            f"f{number}": value_of(part, random, format, depth) for number, part in enumerate(shape.parts)
        }
    if kind == "again":
        assert shape.whole is not None
        return value_of(shape.whole, random, format, depth + 1)
    if kind == "optional":
        rest = depth > 2 or random.random() < 0.5
        return None if rest else value_of(shape.parts[0], random, format, depth)
    count = 0 if depth > 2 else random.choice((0, 0, 1, 2, 5))
    if kind == "array":
        found = [value_of(shape.parts[0], random, format, depth + 1) for _ in range(count)]
        return [each for number, each in enumerate(found) if format != "json" or each not in found[:number]]
    if kind == "map":
        return {
            "k" * number: value_of(shape.parts[0], random, format, depth + 1)
            for number in range(1, count + 1)
        }
    return _scalar(kind, random)


def _scalar(kind: str, random: Random) -> Any:
    if kind in ("int", "long"):
        bits = random.choice((1, 7, 31 if kind == "int" else 63))
        return random.randint(-(2**bits), 2**bits - 1)
    if kind in ("float", "double"):
        return random.choice((0.0, -1.5, 2.0**100, 1024.0))
    if kind in ("decimal", "fixed-decimal"):
        return Decimal(random.randint(-(10**12), 10**12)).scaleb(-2)
    made: dict[str, Callable[[], Any]] = {
        "null": lambda: None,
        "boolean": lambda: random.random() < 0.5,
        "string": lambda: random.choice(("", "a", "ä" * 5, "x" * 200)),
        "pattern": lambda: "k" * random.randint(1, 9),
        "bytes": lambda: random.randbytes(random.choice((0, 1, 100))),
        "enum": lambda: random.choice(_SYMBOLS),
        "fixed": lambda: random.randbytes(3),
        "nothing": lambda: b"",
        "timestamp": lambda: _EPOCH + timedelta(microseconds=random.randint(-(10**15), 10**15)),
        "date": lambda: date.fromordinal(random.randint(1, 3_000_000)),
        "uuid": lambda: UUID(int=random.getrandbits(128)),
    }
    return made[kind]()


_ODD: tuple[Any, ...] = (
    None, True, 0, 2**31, 2**63, 2**64, -1, 1.5, 1e300, float("inf"), "", "\ud800", "RED", b"", b"abc", b"abcd",
    [], [None], {}, {"k": 1}, {1: 1}, Decimal("1E+9"), Decimal(2) ** -40, _EPOCH, object(), 1j,
)  # fmt: skip


def misfit(value: Any, random: Random) -> Any:
    """A copy of a value with a part that is of another type, too many, or missing."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        name = random.choice(list(value))
        chance = random.random()
        if chance < 0.1:
            return {key: each for key, each in value.items() if key != name}
        if chance < 0.2:
            return {**value, "other": 1}
        return {**value, name: misfit(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        place = random.randrange(len(value))
        return [*value[:place], misfit(value[place], random), *value[place + 1 :]]
    return random.choice(_ODD)


def _far(random: Random) -> bytes:
    """A number as Avro and Protobuf have it, often a large one."""
    return _varint(random.getrandbits(random.choice((7, 20, 40, 64))))


_PIECES = (
    b"[",
    b"]",
    b"{",
    b'{"f0":',
    b'"k":',
    b",",
    b'"',
    b"9" * 50,
    b"\\ud800",
    b"null",
    b"\x00",
    b"\x02",
    b"\xff",
    b"\x01",
)


def hostile(body: bytes, random: Random) -> bytes:
    """A body with damage at a few places; rarely a long run of the same bytes."""
    chance = random.random()
    if chance < 0.05:
        return random.randbytes(random.choice((1, 5, 50, 5_000)))
    if chance < 0.1:
        return _far(random) + bytes([random.choice((0, 2, 4))]) * random.choice((100, 5_000, 50_000))
    if chance < 0.13:
        return random.choice(_PIECES) * random.choice((10, 300, 20_000))
    if chance < 0.16 and body:
        begin = random.randrange(len(body))
        return (
            body[:begin]
            + body[begin : begin + random.randint(1, 6)] * random.choice((20, 30, 3_000))
            + body[begin:]
        )
    if chance < 0.4 and body:
        place = random.randrange(len(body))
        return body[:place] + bytes([body[place] ^ 1 << random.randrange(8)]) + body[place + 1 :]
    for _ in range(random.choice((1, 1, 2, 5))):
        place, other = random.randint(0, len(body)), random.randint(0, len(body))
        piece = random.choice(
            (random.randbytes(1), _far(random), random.choice(_PIECES), body[other : other + 9])
        )
        cut = random.choice((0, 1, len(piece)))
        body = body[:place] if random.random() < 0.1 else body[:place] + piece + body[place + cut :]
    return body


def bombs(format: Format) -> dict[str, tuple[str, bytes]]:
    """Schemas and bodies, by a name, that crash a decoder without limits, or take its time or memory."""
    if format == "avro":
        nothing = [{"name": f"n{number}", "type": "null"} for number in range(200)]
        wide = {"type": "record", "name": "Wide", "fields": [*nothing, {"name": "a", "type": "boolean"}]}
        again = {"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}
        decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9}
        return {
            "contains itself": (json.dumps(again), b"\x02" * 5_000_000),
            "items of no byte": (json.dumps({"type": "array", "items": "null"}), _varint(2**27) + b"\0"),
            "items of a byte": (
                json.dumps({"type": "array", "items": wide}),
                _varint(2 * 10**5) + bytes(10**5 + 1),
            ),
            "a decimal": (json.dumps(decimal), _varint(400_000) + b"\x7f" * 200_000),
        }
    if format == "json":
        tree = {"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "required": ["x"]}
        words = json.dumps("k" * 100_000 + "!").encode()
        items = json.dumps([{"a": [number]} for number in (*range(20_000), 5)]).encode()
        return {
            "branches": (json.dumps(tree), b'{"x":1,"a":' * 50 + b"{}" + b"}" * 50),
            "a pattern": ('{"pattern": "^(k+)+$"}', words),
            "items": ('{"uniqueItems": true}', items),
            "depth": ("true", b"[" * 1_000_000),
            "values": ("true", b"[{}" + b",{}" * 5_000_000 + b"]"),
        }
    file = descriptor_pb2.FileDescriptorProto(name="bomb.proto", syntax="proto3")
    wide_message = file.message_type.add(name="Wide")
    wide_message.field.add(name="again", number=1, label=3, type=11, type_name=".Wide")
    for number in range(2, 30):
        wide_message.field.add(name=f"f{number}", number=number, label=1, type=3)
    text = base64.b64encode(file.SerializeToString()).decode()
    return {"empty messages": (text, b"\x0a\x00" * 3_000_000), "depth": (text, b"\x0a\x02" * 1_000)}


def _varint(number: int) -> bytes:
    written = b""
    while number > 0x7F:
        written, number = written + bytes([number & 0x7F | 0x80]), number >> 7
    return written + bytes([number])
