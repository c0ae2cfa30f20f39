"""Bodies in Avro, without a frame.

Theory. fastavro writes quickly and accepts much: a text as a boolean, and a number that is too large for an int. So
pydantic-core checks a value first, by the rules of the schema (`_Rules`). It names the path of a field that doesn't
fit, and fills in defaults.

Rules
1. A schema is checked when it is parsed (`limits.check_avro`), so that no body crashes or outgrows its decoder.
2. A decimal is read by a function of ours: fastavro's takes minutes for a large one, and rounds it to the digits of
   another schema if two threads read at once.
3. A reader's defaults are decoded once, and copied for each value if they can be changed.
4. Code made for the schema (`avro_code`) reads bodies whose reader's schema is the writer's; fastavro reads the rest,
   and what that code refuses.
"""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from enum import Enum
from functools import cached_property
from typing import Any, cast

from fastavro import schemaless_reader, schemaless_writer
from fastavro.read import LOGICAL_READERS, SchemaResolutionError
from fastavro.write import LOGICAL_WRITERS
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from kafka_pubsub.errors import PubSubError, SchemaError
from kafka_pubsub.records.avro_code import Read, make_reader
from kafka_pubsub.records.codec import Codec, Format
from kafka_pubsub.records.compatibility import compare
from kafka_pubsub.records.limits import (
    MOST_BYTES,
    MOST_DIGITS,
    CountedBytes,
    Growth,
    Node,
    check_avro,
    parse_avro,
    refuse_large,
)
from kafka_pubsub.records.values import NAMED_PROBLEMS, checker_of, fit_float, plain, problem_of

__all__ = ["AvroCodec"]

#: Our name of the logical type `decimal`, so that fastavro reads it with our function.
_DECIMAL = "kafka-pubsub-decimal"
#: Digits enough for every decimal that a schema may have. No setting of it changes, so threads share it.
_EXACT = Context(prec=2 * MOST_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)
#: Where a schema has other schemas inside.
_NODES = ("type", "items", "values", "fields")
#: With a limit of its length, text with half a character is refused too.
_TEXT = core_schema.str_schema(strict=True, min_length=0)


def _read_decimal(data: bytes, writer: Node = None, reader: Node = None) -> Decimal:
    precision = writer["precision"]
    if len(data) > max(writer.get("size", 0), _most_bytes(precision)):
        raise ValueError(f"a decimal of {precision} digits doesn't have {len(data)} bytes")
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-writer.get("scale", 0), _EXACT)


def _most_bytes(digits: int) -> int:
    return math.ceil(digits * math.log2(10) / 8) + 1


for _kind in ("bytes", "fixed"):
    LOGICAL_READERS[f"{_kind}-{_DECIMAL}"] = _read_decimal
    LOGICAL_WRITERS[f"{_kind}-{_DECIMAL}"] = LOGICAL_WRITERS[f"{_kind}-decimal"]


class AvroCodec:
    """An Avro schema: bodies are the plain Avro of a value."""

    format: Format = "avro"

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        self.text = text
        named = _parse_all(references)
        parsed, self._named = parse_avro(text, named, _renamed)
        self._parsed = _with_marks(parsed, self._named)
        self._growth = check_avro(self._parsed, self._named)
        self._harmless = min(self._growth.harmless, MOST_BYTES)
        self._changeable = _decode_defaults(self._named)
        validator = SchemaValidator(_Rules(self._named).of(self._parsed))
        self._check, self._check_json = validator.validate_python, validator.validate_json
        self._resolutions: dict[AvroCodec, _Resolution | None] = {}

    def encode(self, value: object) -> bytes:
        """See `Codec`."""
        try:
            checked = self._check(plain(value))
            out = io.BytesIO()
            schemaless_writer(out, self._parsed, checked, disable_tuple_notation=True)
        except Exception as error:
            raise SchemaError(problem_of(error)) from error
        body = out.getvalue()
        if len(body) > self._harmless:
            self._read(body, None, self._growth)
        return body

    def read_json(self, text: bytes) -> object:
        """See `Codec`."""
        try:
            value: object = self._check_json(text)
        except Exception as error:
            raise SchemaError(problem_of(error)) from error
        return value

    def decode(self, body: bytes, kind: type | None = None, reader: Codec | None = None) -> object:
        """See `Codec`."""
        return self.decoder(kind, reader, 0)(body)

    def _decode_slowly(self, body: bytes, kind: type | None, reader: Codec | None) -> object:
        resolution = self._resolution(reader)
        if resolution is None:
            value = self._read(body, None, self._growth if len(body) > self._harmless else None)
        else:
            value = resolution.read(body)
        return value if kind is None else _checked(value, checker_of(kind))

    def decoder(self, kind: type | None, reader: Codec | None, begin: int) -> Callable[[bytes], object]:
        """See `Codec`."""
        made = self._made
        if made is None or self._resolution(reader) is not None:
            return lambda body: self._decode_slowly(body[begin:], kind, reader)
        most, check = self._harmless + begin, None if kind is None else checker_of(kind)

        def decode(body: bytes) -> object:
            if len(body) <= most:
                try:
                    value, end = made(body, begin)
                except Exception:
                    end = -1  # fastavro reads it, or says what is wrong
                if end == len(body):
                    return value if check is None else _checked(value, check)
            return self._decode_slowly(body[begin:], kind, reader)

        return decode

    @cached_property
    def _made(self) -> Read | None:
        return make_reader(self._parsed, self._named)

    def _read(self, body: bytes, reader: Node, counted: Growth | None) -> object:
        if counted is None:
            source = io.BytesIO(body)
        else:
            refuse_large(body)
            source = CountedBytes(body, counted)
        try:
            value = schemaless_reader(source, self._parsed, reader)
        except SchemaError:
            raise
        except EOFError as error:
            raise SchemaError(f"not a body of the schema ({len(body)} bytes): it ends too early") from error
        except Exception as error:
            raise SchemaError(f"not a body of the schema ({len(body)} bytes): {problem_of(error)}") from error
        if source.tell() != len(body):
            raise SchemaError(
                f"not a body of the schema: {len(body) - source.tell()} of {len(body)} bytes are left over"
            )
        return value

    def _resolution(self, reader: Codec | None) -> _Resolution | None:
        """Returns how bodies are read as values of another schema; None: `reader` is the same, or none is given."""
        if reader is None or reader is self:
            return None
        if not isinstance(reader, AvroCodec):
            raise SchemaError(f"a body in Avro can't be read as a schema of the format {reader.format}")
        if reader not in self._resolutions:
            same = reader._parsed == self._parsed and reader._named == self._named
            self._resolutions[reader] = None if same else _Resolution(self, reader)
        return self._resolutions[reader]


class _Resolution:
    """Reads bodies of a writer's schema as values of a reader's."""

    def __init__(self, writer: AvroCodec, reader: AvroCodec) -> None:
        self._writer, self._reader = writer, reader
        self._growth = writer._growth.resolved_to(reader._growth)
        self._harmless = min(self._growth.harmless, MOST_BYTES)

    def read(self, body: bytes) -> object:
        counted = self._growth if len(body) > self._harmless else None
        try:
            value = self._writer._read(body, self._reader._parsed, counted)
        except SchemaError as error:
            if isinstance(error.__cause__, SchemaResolutionError):
                raise SchemaError(self._misfit or error.message) from error.__cause__
            raise
        return copy.deepcopy(value) if self._reader._changeable else value

    @cached_property
    def _misfit(self) -> str:
        """Why the reader's schema can't have bodies of the writer's, with each field; empty: it isn't known."""
        try:
            found = compare("avro", self._reader.text, self._writer.text)
        except PubSubError:  # the package that compares is missing, or the texts refer to others
            return ""
        said = "; ".join(
            f"{path}: {problem}" if path else problem for path, problem in found[:NAMED_PROBLEMS]
        )
        return f"the reader's schema doesn't fit: {said}" if said else ""


def _checked(value: object, check: Callable[[object], object]) -> object:
    try:
        return check(value)
    except Exception as error:
        raise SchemaError(problem_of(error)) from error


def _with_marks(node: Node, named: Mapping[str, Any]) -> Node:
    """Returns a parsed schema in which fastavro finds the schemas that it names; those of references, too."""
    if isinstance(node, list):
        return [_with_marks(each, named) for each in node]
    if isinstance(node, str):
        return {**named[node], **_parsed_marks(named)} if node in named else node
    return {**node, **_parsed_marks(named)}


def _parse_all(references: Mapping[str, str]) -> dict[str, Any]:
    """Returns the named schemas of the references, which may refer to each other in any order."""
    named: dict[str, Any] = {}
    waiting = list(references.values())
    while waiting:
        later: list[str] = []
        problem: SchemaError | None = None
        for text in waiting:
            found = dict(named)
            try:
                parse_avro(text, found, _renamed)
            except SchemaError as error:
                problem, later = error, [*later, text]
            else:
                named = found
        if problem is not None and len(later) == len(waiting):
            raise problem
        waiting = later
    return named


def _renamed(node: Node) -> Node:
    """Returns a schema whose decimals are of our logical type."""
    if isinstance(node, list):
        return [_renamed(each) for each in node]
    if not isinstance(node, dict):
        return node
    changed = {key: _renamed(each) if key in _NODES else each for key, each in node.items()}
    if (
        node.get("logicalType") == "decimal"
        and node.get("type") in ("bytes", "fixed")
        and "precision" in node
    ):
        changed["logicalType"] = _DECIMAL
    return changed


def _decode_defaults(named: Mapping[str, Any]) -> bool:
    """Replaces the defaults of all fields by values as bodies give them; returns whether any can be changed."""
    records = [each for each in named.values() if each["type"] in ("record", "error")]
    fields = {id(each): each for record in records for each in record["fields"] if "default" in each}
    decoded = {place: _decoded(each["type"], each["default"], named) for place, each in fields.items()}
    for place, each in fields.items():
        each["default"] = decoded[place]
    return any(isinstance(each, list | dict) for each in decoded.values())


def _decoded(node: Node, default: Node, named: Mapping[str, Any]) -> Node:
    fields = [{"name": "value", "type": node}]
    whole = {"type": "record", "name": "kafka_pubsub_default", "fields": fields, **_parsed_marks(named)}
    body = io.BytesIO()
    try:
        schemaless_writer(body, whole, {"value": _with_bytes(node, default, named)})
        body.seek(0)
        return cast("dict[str, Node]", schemaless_reader(body, whole, None))["value"]
    except Exception as error:
        raise SchemaError(f"schema: the default {default!r} doesn't fit its field: {error}") from error


def _parsed_marks(named: Mapping[str, Any]) -> dict[str, Any]:
    return {"__fastavro_parsed": True, "__named_schemas": dict(named)}


def _with_bytes(node: Node, default: Node, named: Mapping[str, Any]) -> Node:
    """Returns a default of a schema with its bytes, which JSON gives as text."""
    if isinstance(node, list):
        if default is None:
            return None
        fitting = [
            each for each in node if _is_text_of(each, named) == isinstance(default, str) and each != "null"
        ]
        return _with_bytes(fitting[0], default, named) if fitting else default
    if isinstance(node, str):
        node = named.get(node, {"type": node})
    kind = node["type"]
    if kind in ("bytes", "fixed"):
        return default.encode("latin-1")
    if kind == "array":
        return [_with_bytes(node["items"], each, named) for each in default]
    if kind == "map":
        return {key: _with_bytes(node["values"], each, named) for key, each in default.items()}
    if kind in ("record", "error"):
        given = {each["name"]: default.get(each["name"], each.get("default")) for each in node["fields"]}
        return {
            each["name"]: _with_bytes(each["type"], given[each["name"]], named) for each in node["fields"]
        }
    return default


def _is_text_of(node: Node, named: Mapping[str, Any]) -> bool:
    """Whether JSON gives defaults of a schema as text."""
    kind = named.get(node, {"type": node})["type"] if isinstance(node, str) else node["type"]
    return kind in ("string", "bytes", "fixed", "enum")


class _Rules:
    """Makes the rules by which pydantic-core checks a value before it is encoded."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, CoreSchema] = {}

    def of(self, node: Node) -> CoreSchema:
        """Returns the rule of a part of a schema."""
        if isinstance(node, list):
            return self._of_union(node)
        if isinstance(node, str):
            if node not in self._named:
                return _primitive(node)
            if node not in self._known:
                self._known[node] = self.of(self._named[node])
            return self._known[node]
        return self._of_container(node) or _logical(node) or self._of_scalar(node)

    def _of_container(self, node: Node) -> CoreSchema | None:
        kind = node["type"]
        if kind == "array":
            return core_schema.list_schema(self.of(node["items"]))
        if kind == "map":
            return core_schema.dict_schema(_TEXT, self.of(node["values"]))
        return self._of_record(node) if kind in ("record", "error") else None

    def _of_scalar(self, node: Node) -> CoreSchema:
        kind = node["type"]
        if kind == "enum":
            symbols = core_schema.literal_schema(node["symbols"])
            return core_schema.no_info_before_validator_function(_value_of, symbols)
        if kind == "fixed":
            return core_schema.bytes_schema(min_length=node["size"], max_length=node["size"], strict=True)
        return self.of(kind)

    def _of_union(self, node: list[Any]) -> CoreSchema:
        others = [self.of(each) for each in node if each != "null"]
        if not others:
            return core_schema.none_schema()
        names = ", ".join(_name_of(each) for each in node)
        whole = (
            others[0]
            if len(others) == 1
            else core_schema.union_schema(
                list(others),
                mode="left_to_right",
                custom_error_type="avro_union",
                custom_error_message=f"Input should be one of {names}",
            )
        )
        return core_schema.nullable_schema(whole) if len(others) < len(node) else whole

    def _of_record(self, node: Node) -> CoreSchema:
        fields = {}
        for each in node["fields"]:
            rule = self.of(each["type"])
            if "default" in each:
                rule = core_schema.with_default_schema(rule, default=each["default"])
            fields[each["name"]] = core_schema.typed_dict_field(rule, required="default" not in each)
        return core_schema.typed_dict_schema(fields, extra_behavior="forbid")


def _name_of(node: Node) -> str:
    if isinstance(node, str):
        return node
    name: str = node.get("name") or node.get("logicalType") or _name_of(node["type"])
    return name.replace(_DECIMAL, "decimal")


def _value_of(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _primitive(name: str) -> CoreSchema:
    if name == "null":
        return core_schema.none_schema()
    if name == "boolean":
        return core_schema.bool_schema(strict=True)
    if name in ("int", "long"):
        end = 2 ** (31 if name == "int" else 63)
        return core_schema.int_schema(ge=-end, le=end - 1, strict=True)
    if name == "float":
        return core_schema.no_info_after_validator_function(fit_float, core_schema.float_schema(strict=True))
    if name == "double":
        return core_schema.float_schema(strict=True)
    return _TEXT if name == "string" else core_schema.bytes_schema(strict=True)


def _logical(node: Node) -> CoreSchema | None:
    """Returns the rule of a logical type; None: it has none, so that the value is of the type below it."""
    name = f"{node['type']}-{node.get('logicalType')}"
    if name in ("long-timestamp-millis", "long-timestamp-micros"):
        return core_schema.datetime_schema(strict=True)
    if name in ("long-local-timestamp-millis", "long-local-timestamp-micros"):
        return core_schema.datetime_schema(strict=True, tz_constraint="naive")
    if name == "int-date":
        return core_schema.date_schema(strict=True)
    if name in ("int-time-millis", "long-time-micros"):
        return core_schema.time_schema(strict=True)
    if name == "string-uuid":
        return core_schema.uuid_schema(strict=True)
    if name in (f"bytes-{_DECIMAL}", f"fixed-{_DECIMAL}"):
        places = node.get("scale", 0)
        return core_schema.decimal_schema(
            max_digits=node["precision"], decimal_places=places, allow_inf_nan=False, strict=True
        )
    return None
