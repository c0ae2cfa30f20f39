"""Compares a schema with earlier ones: which bodies couldn't be read any more, and why.

Rules
1. A schema is compared with every earlier one, because bodies of all of them may still be in a topic.
2. For Avro, Apache's own checker decides. It is asked again for each part that it refuses, so that the part is named.
3. JSON Schema and Protobuf have no such checker here. Sure breaks are found (`json_compatibility`,
   `protobuf_compatibility`); a registry compares more.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kafka_pubsub.errors import FailedPrecondition, SchemaError
from kafka_pubsub.records.codec import Format

if TYPE_CHECKING:
    from avro.schema import RecordSchema, Schema

__all__ = ["ALL_CHECKED", "Break", "Compatibility", "compare", "find_breaks"]

#: "backward": the new schema reads earlier bodies; "forward": the earlier ones read new bodies; "full": both.
Compatibility = Literal["backward", "forward", "full"]
#: Whether all that can break is found, by format.
ALL_CHECKED: Final[Mapping[Format, bool]] = {"avro": True, "json": False, "protobuf": False}


class Break(NamedTuple):
    """A place at which one schema can't read the bodies of another."""

    #: The number of the earlier schema.
    number: int
    #: "backward": the new schema can't read the earlier one's bodies; "forward": the earlier one can't read new bodies.
    direction: Literal["backward", "forward"]
    #: The field's path, such as `lines[].price`; empty for the schema itself.
    field: str
    problem: str


def find_breaks(
    format_: Format, new: str, earlier: Mapping[int, str], compatibility: Compatibility = "backward"
) -> list[Break]:
    """Compares a schema with the earlier ones, which have their numbers; returns the breaks, the last one's first."""
    found: list[Break] = []
    for number in sorted(earlier, reverse=True):
        if compatibility != "forward":
            found += [Break(number, "backward", *each) for each in compare(format_, new, earlier[number])]
        if compatibility != "backward":
            found += [Break(number, "forward", *each) for each in compare(format_, earlier[number], new)]
    return found


def compare(format_: Format, reader: str, writer: str) -> list[tuple[str, str]]:
    """Returns each field that keeps `reader` from reading bodies of `writer`, and why."""
    if format_ == "json":
        from kafka_pubsub.records.json_compatibility import compare_json

        return compare_json(reader, writer)
    if format_ == "protobuf":
        from kafka_pubsub.records.protobuf_compatibility import compare_protobuf

        return compare_protobuf(reader, writer)
    return list(_broken(_parsed(reader), _parsed(writer), ""))


def _parsed(text: str) -> Schema:
    try:
        import avro.schema
    except ImportError as error:
        raise FailedPrecondition(
            f"Avro schemas are compared with Apache's package, and {error.name} is missing: pip install "
            "'kafka-pubsub-orderly[schema]'"
        ) from error
    try:
        with warnings.catch_warnings():
            # It warns of logical types that it doesn't know; they change no byte.
            warnings.simplefilter("ignore")
            return avro.schema.parse(text)
    except Exception as error:
        raise SchemaError(f"schema: not an Avro schema: {error}") from error


def _broken(reader: Schema, writer: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Yields the parts of `reader` that can't read bodies of `writer`."""
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.schema import ArraySchema, MapSchema, RecordSchema, UnionSchema

    told = ReaderWriterCompatibilityChecker().get_compatibility(reader, writer)
    if told.compatibility is SchemaCompatibilityType.compatible:
        return
    below: list[tuple[str, str]] = []
    if isinstance(reader, RecordSchema) and isinstance(writer, RecordSchema) and _same_name(reader, writer):
        below = list(_broken_fields(reader, writer, path))
    elif isinstance(reader, ArraySchema) and isinstance(writer, ArraySchema):
        below = list(_broken(reader.items, writer.items, f"{path}[]"))
    elif isinstance(reader, MapSchema) and isinstance(writer, MapSchema):
        below = list(_broken(reader.values, writer.values, f"{path}{{}}"))
    elif isinstance(reader, UnionSchema) or isinstance(writer, UnionSchema):
        below = list(_broken_branches(reader, writer, path))
    yield from below or [(path, _said(reader, writer))]


def _broken_fields(reader: RecordSchema, writer: RecordSchema, path: str) -> Iterator[tuple[str, str]]:
    from avro.compatibility import lookup_writer_field

    for field in reader.fields:
        name = f"{path}.{field.name}" if path else str(field.name)
        written = lookup_writer_field(writer, field)
        if written is not None:
            yield from _broken(field.type, written.type, name)
        elif not field.has_default:
            yield name, "bodies don't have it, and it has no default"


def _broken_branches(reader: Schema, writer: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Yields the breaks of each branch of the writer; goes into a record that the reader has under its name."""
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

    for branch in _branches(writer):
        told = ReaderWriterCompatibilityChecker().get_compatibility(reader, branch)
        if told.compatibility is SchemaCompatibilityType.compatible:
            continue
        alike = [each for each in _branches(reader) if each.type == branch.type and _same_name(each, branch)]
        if alike:
            yield from _broken(alike[0], branch, path)
        else:
            known = " or ".join(map(_named, _branches(reader)))
            yield path, f"a body may have {_named(branch)}, which can't be read as {known}"


def _branches(schema: Schema) -> list[Schema]:
    from avro.schema import UnionSchema

    return list(schema.schemas) if isinstance(schema, UnionSchema) else [schema]


def _same_name(reader: Schema, writer: Schema) -> bool:
    """Returns whether two schemas of one type have one name, or an alias for it; those without a name have."""
    from avro.compatibility import schema_name_equals
    from avro.schema import NamedSchema

    if not isinstance(reader, NamedSchema) or not isinstance(writer, NamedSchema):
        return True
    return schema_name_equals(reader, writer)


def _said(reader: Schema, writer: Schema) -> str:
    from avro.schema import EnumSchema, FixedSchema

    if reader.type != writer.type or not _same_name(reader, writer):
        return f"{_named(writer)} can't be read as {_named(reader)}"
    if isinstance(reader, EnumSchema) and isinstance(writer, EnumSchema):
        lost = [each for each in writer.symbols if each not in reader.symbols]
        return f"{', '.join(lost)} of the enum {reader.name} can't be read, and the enum has no default"
    if isinstance(reader, FixedSchema) and isinstance(writer, FixedSchema):
        return f"{writer.size} bytes can't be read as {reader.size}"
    return f"{_named(writer)} can't be read as {_named(reader)}"


def _named(schema: Schema) -> str:
    from avro.schema import NamedSchema

    return f"{schema.type} {schema.name}" if isinstance(schema, NamedSchema) else str(schema.type)
