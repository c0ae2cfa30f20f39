"""Compares two Protobuf schemas: the sure breaks between them.

Theory. A field is its number on the wire, so names may change, new fields have defaults, and fields that are gone are
kept as unknown. A break is a number with another kind of value: its bytes are read as a wrong value, or not at all. A
name with another number is a break, too: its values are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from kafka_pubsub.records.message_index import Descriptor, is_repeated
from kafka_pubsub.records.protobuf import ProtobufCodec

__all__ = ["compare_protobuf"]

#: Kinds that can be read as each other, in both directions unless the next set says otherwise; every kind as itself.
_ALIKE: Final = (
    {"int32", "uint32", "int64", "uint64", "bool", "enum"},
    {"sint32", "sint64"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
    {"string", "bytes"},
)
#: From the first to the second values are lost.
_NARROWER: Final = (
    ({"int64", "uint64"}, {"int32", "uint32", "bool", "enum"}),
    ({"int32", "uint32", "enum"}, {"bool"}),
    ({"sint64"}, {"sint32"}),
    ({"bytes"}, {"string"}),
)


def compare_protobuf(reader: str, writer: str) -> list[tuple[str, str]]:
    """Returns each field of `reader` that can't read bodies of `writer`, and why; also messages that are gone."""
    read, written = ProtobufCodec(reader, {}).file, ProtobufCodec(writer, {}).file
    found: list[tuple[str, str]] = []
    for name, message in written.message_types_by_name.items():
        if name in read.message_types_by_name:
            found += _broken(read.message_types_by_name[name], message, name, set())
        else:
            found.append((name, "the message isn't there"))
    return found


def _broken(
    reader: Descriptor, writer: Descriptor, path: str, inside: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    pair = reader.full_name, writer.full_name
    if pair in inside:
        return
    inside.add(pair)
    for number, written in writer.fields_by_number.items():
        read = reader.fields_by_number.get(number)
        moved = reader.fields_by_name.get(written.name)
        if moved is not None and moved.number != number:
            end = "lost" if read is None else f"read as {read.name}"
            said = f"it has the number {moved.number}, and {number} in bodies, whose values would be {end}"
            yield f"{path}.{written.name}", said
        if read is None:
            continue
        name = f"{path}.{read.name}"
        kind, was = _kind(read), _kind(written)
        if not _can_read(kind, was):
            yield name, f"field {number} has {was} in bodies, which can't be read as {kind}"
        elif is_repeated(written) and not is_repeated(read):
            yield name, f"field {number} has several values in bodies, and only the last would be read"
        elif kind == "message":
            yield from _broken(read.message_type, written.message_type, name, inside)
    for number, read in reader.fields_by_number.items():
        written = writer.fields_by_number.get(number)
        if _is_required(read) and (written is None or not _is_required(written)):
            yield f"{path}.{read.name}", "it is required, and bodies may lack it"


def _can_read(kind: str, was: str) -> bool:
    if kind == was:
        return True
    if any(was in wide and kind in narrow for wide, narrow in _NARROWER):
        return False
    return any({kind, was} <= each for each in _ALIKE)


def _kind(field: Descriptor) -> str:
    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()


def _is_required(field: Descriptor) -> bool:
    told = getattr(field, "is_required", None)
    return bool(field.label == field.LABEL_REQUIRED if told is None else told)
