"""Limits of schemas and bodies, and the check that an Avro schema can't turn few bytes into many values.

Theory. A body is as large as a message may be, but its value can be much larger: an empty map takes a byte in Avro and
64 in memory. So the number of values is limited. An Avro schema tells how many values a byte can become at most
(`Growth`), so bodies below a size need no count.

Rule: this module imports neither pydantic nor fastavro's reader, because Spark's drivers check schemas with it.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from kafka_pubsub.errors import SchemaError

__all__ = [
    "MOST_BYTES",
    "MOST_DEPTH",
    "MOST_DIGITS",
    "MOST_FIELDS",
    "MOST_REFERENCES",
    "MOST_VALUES",
    "CountedBytes",
    "Growth",
    "Node",
    "check_avro",
    "check_schema",
    "parse_avro",
    "refuse_large",
]

#: Bytes of a body.
MOST_BYTES = 16 << 20
#: Values in a body: fields, items, and the containers of both.
MOST_VALUES = 1_000_000
#: Values that a schema has beside the items of its arrays and maps.
MOST_FIELDS = 10_000
#: Schemas inside of each other.
MOST_DEPTH = 64
#: References that the check of one JSON value follows.
MOST_REFERENCES = 200_000
#: Digits of a decimal.
MOST_DIGITS = 1_000

#: A part of a schema, as JSON and fastavro give it.
Node: TypeAlias = Any

_NAMED = ("record", "enum", "fixed", "error")
#: Avro's own types: a schema that had one of these names would mean another thing here than there.
_TYPES = {
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    *("array", "map", "union", "error_union", "request"),
    *_NAMED,
}


def refuse_large(body: bytes) -> None:
    """Raises `SchemaError` for a body that is too large to be decoded."""
    if len(body) > MOST_BYTES:
        raise SchemaError(f"a body of {len(body)} bytes isn't decoded: the most are {MOST_BYTES}")


class Growth(NamedTuple):
    """How many values a body can become at most: `by_read` for each read of the decoder, beside `fields`.

    A read takes a byte or more. `by_item` are the values in the largest item of an array or a map.
    """

    fields: int
    by_read: int
    by_item: int

    @property
    def harmless(self) -> int:
        """The number of bytes, and of reads, up to which no body becomes too many values."""
        return (MOST_VALUES - self.fields) // self.by_read if self.by_read else MOST_BYTES

    def resolved_to(self, reader: Growth) -> Growth:
        """Returns how bodies of this schema can grow that are read as values of another: it may have more fields."""
        by_read = max(self.by_read, reader.by_item) if self.by_read else 0
        return Growth(max(self.fields, reader.fields), by_read, reader.by_item)


class CountedBytes(io.BytesIO):
    """A body that ends its decoding once it may have become too many values."""

    def __init__(self, body: bytes, growth: Growth) -> None:
        super().__init__(body)
        self._left = growth.harmless

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads bytes; raises `SchemaError` beyond the limit."""
        self._left -= 1
        if self._left < 0:
            raise SchemaError(f"the body has more than {MOST_VALUES} values")
        return super().read(size)


def check_schema(schema: str) -> Node:
    """Parses an Avro schema; raises `SchemaError` if it isn't one, or isn't safe to decode with."""
    parsed, named = parse_avro(schema, {})
    check_avro(parsed, named)
    return json.loads(schema)


def parse_avro(
    schema: str, named: dict[str, Any], change: Callable[[Any], Any] | None = None
) -> tuple[Any, dict[str, Any]]:
    """Parses an Avro schema to fastavro's form, in which names are full; adds its named schemas to `named`.

    `change` makes the JSON that is parsed in the end out of the schema's (default: None, the same).
    """
    import fastavro

    try:
        given = json.loads(schema)
        _refuse_marks(given)
        parsed = fastavro.parse_schema(given, dict(named) if change else named)
        if change:
            parsed = fastavro.parse_schema(change(given), named)
    except Exception as error:
        raise SchemaError(f"schema: not an Avro schema: {type(error).__name__}: {error}") from error
    return parsed, named


def _refuse_marks(given: Node) -> None:
    """Refuses a text that fastavro would take for a schema that it has parsed itself."""
    for each in given if isinstance(given, list) else [given]:
        if isinstance(each, dict) and "__fastavro_parsed" in each:
            raise ValueError("__fastavro_parsed is a mark of fastavro's own: leave it out")


def check_avro(parsed: Node, named: Mapping[str, Any]) -> Growth:
    """Returns how bodies of a schema in fastavro's form can grow; raises `SchemaError` if there is no limit.

    `named` are the schemas that it names.
    """
    walk = _Walk(named)
    whole = walk.size_of(parsed, 0)
    return Growth(whole.fields, walk.by_read, walk.by_item)


class _Size(NamedTuple):
    """The fewest reads for a value of a schema, and the most values in it, without items of arrays and maps."""

    reads: int
    fields: int


@dataclass
class _Walk:
    named: Mapping[str, Any]
    known: dict[str, _Size] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    by_read: int = 0
    by_item: int = 0

    def size_of(self, node: Node, depth: int) -> _Size:
        if depth > MOST_DEPTH:
            raise SchemaError(f"schema: nested more than {MOST_DEPTH} deep: make it flatter")
        if isinstance(node, str):
            return self._size_of_name(node, depth)
        if isinstance(node, list):
            sizes = [self.size_of(each, depth + 1) for each in node]
            reads = min((size.reads for size in sizes), default=0)
            return _Size(1 + reads, 1 + max((size.fields for size in sizes), default=0))
        _check_decimal(node)
        kind = node["type"]
        if kind in ("array", "map"):
            self._check_items(kind, node, depth)
            return _Size(1, 1)
        if kind in _NAMED:
            return self._size_of_named(node, depth)
        return self.size_of(kind, depth + 1)

    def _size_of_name(self, name: str, depth: int) -> _Size:
        if name in self.inside:
            raise SchemaError(
                f"schema: {name} contains itself, which can crash its decoder: give it a fixed depth"
            )
        if name not in self.known and name in self.named:
            return self.size_of(self.named[name], depth + 1)
        return self.known.get(name, _Size(int(name != "null"), 1))

    def _check_items(self, kind: str, node: Node, depth: int) -> None:
        item = self.size_of(node["items" if kind == "array" else "values"], depth + 1)
        if kind == "map":
            # The key takes a read, and is a value.
            item = _Size(item.reads + 1, item.fields + 1)
        if item.reads == 0:
            raise SchemaError(
                "schema: an array of items that take no bytes can grow without limit: leave it out"
            )
        self.by_read = max(self.by_read, math.ceil(item.fields / item.reads))
        self.by_item = max(self.by_item, item.fields)

    def _size_of_named(self, node: Node, depth: int) -> _Size:
        name, size = node["name"], _Size(1, 1)
        if name in _TYPES:
            raise SchemaError(f"schema: {name!r} is a type of Avro: rename what has this name")
        if node["type"] == "fixed":
            if type(node["size"]) is not int or node["size"] < 0:
                raise SchemaError(f"schema: {name} has the size {node['size']!r}: give a number of bytes")
            size = _Size(int(node["size"] > 0), 1)
        elif node["type"] != "enum":
            self.inside.add(name)
            sizes = [self.size_of(each["type"], depth + 1) for each in node["fields"]]
            self.inside.discard(name)
            size = _Size(sum(each.reads for each in sizes), 1 + sum(each.fields for each in sizes))
        if size.fields > MOST_FIELDS:
            raise SchemaError(
                f"schema: {name} has more than {MOST_FIELDS} fields, those of inner records counted"
            )
        self.known[name] = size
        return size


def _check_decimal(node: Node) -> None:
    precision = node.get("precision", 0) if node.get("logicalType") == "decimal" else 0
    if not isinstance(precision, int) or precision > MOST_DIGITS:
        raise SchemaError(
            f"schema: a decimal of {precision} digits can take minutes: the most are {MOST_DIGITS}"
        )
