"""Decodes Protobuf bodies by the descriptors that `protoc --include_imports --descriptor_set_out=FILE` writes.

Theory. Spark's own decoder for Protobuf is a package that few package registries have. The Python package `protobuf`,
which pyspark itself needs for stateful streaming, decodes the same bodies.

Rules
1. A field that isn't set has its default if the schema gives it one (proto3's numbers and texts); otherwise it is null.
2. An enum becomes its name, or its number as text if that has no name. An unsigned number of 64 bits becomes a decimal.
3. A frame names the message that it holds, and a body with another message than the wanted one isn't decoded.
   Confluent's frame has the message's position in its file. Apicurio's has a small message before the body, whose field
   1 is the name, without the package and the enclosing messages.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_pubsub.errors import FailedPrecondition, SchemaError
from kafka_pubsub.records.message_index import is_map, is_repeated, path_of_message, read_varint, split_index

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from .frames import Framing
    from .python_decoder import Decode

__all__ = ["Protobuf", "by_protobuf"]

_TIMESTAMP = "google.protobuf.Timestamp"


@dataclass(frozen=True)
class Protobuf:
    """A message's full name (`shop.Order`), and the set of descriptors that contains the message, as bytes."""

    descriptors: bytes
    message: str


def by_protobuf(messages: DataFrame, schema: Protobuf, framing: Framing) -> DataFrame:
    """Adds `record` and `problem` to messages that have the columns of `frames.unframed`."""
    from .python_decoder import by_python

    if importlib.util.find_spec("google.protobuf") is None:
        raise FailedPrecondition(
            "Protobuf needs the Python package protobuf, here and on executors: pip install protobuf"
        )
    kind = _type_of(_found(schema), ())
    return by_python(messages, kind, partial(_begin, schema, framing))


def _found(schema: Protobuf) -> Any:
    """Returns the message's descriptor."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(schema.descriptors).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(schema.message)
    except KeyError as error:
        raise SchemaError(f"schema: there is no message {schema.message} among the descriptors") from error
    except Exception as error:
        raise SchemaError(
            f"schema: not a set of descriptors ({error}): make it with protoc --include_imports "
            "--descriptor_set_out=FILE"
        ) from error


def _type_of(message: Any, inside: tuple[str, ...]) -> DataType:
    from pyspark.sql import types as T

    if message.full_name in inside:
        raise SchemaError(f"schema: {message.full_name} contains itself, which columns can't")
    if message.full_name == _TIMESTAMP:
        return T.TimestampType()
    deeper = (*inside, message.full_name)
    fields = []
    for field in message.fields:
        if is_map(field):
            entry = field.message_type.fields_by_name
            kind: DataType = T.MapType(_value_type(entry["key"], deeper), _value_type(entry["value"], deeper))
        else:
            kind = _value_type(field, deeper)
            kind = T.ArrayType(kind) if is_repeated(field) else kind
        fields.append(T.StructField(field.name, kind))
    return T.StructType(fields)


def _value_type(field: Any, inside: tuple[str, ...]) -> DataType:
    """Returns the type of one value of the field."""
    from pyspark.sql import types as T

    if field.message_type is not None:
        return _type_of(field.message_type, inside)
    # The types are chosen by the kind of Python's values (`cpp_type`), which is the same for bytes and text.
    kinds: dict[int, DataType] = {
        field.CPPTYPE_INT32: T.IntegerType(),
        field.CPPTYPE_INT64: T.LongType(),
        field.CPPTYPE_UINT32: T.LongType(),
        field.CPPTYPE_UINT64: T.DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: T.DoubleType(),
        field.CPPTYPE_FLOAT: T.FloatType(),
        field.CPPTYPE_BOOL: T.BooleanType(),
        field.CPPTYPE_ENUM: T.StringType(),
    }
    if field.type == field.TYPE_BYTES:
        return T.BinaryType()
    return kinds.get(field.cpp_type, T.StringType())


def _begin(schema: Protobuf, framing: Framing) -> Decode:
    """Makes the function that decodes bodies, on an executor."""
    from google.protobuf import message_factory

    found = _found(schema)
    made = message_factory.GetMessageClass(found)
    read, path = _reader(found), path_of_message(found)

    def decode(body: bytes, number: int | str | None) -> Any:
        if framing == "confluent":
            said, body = split_index(body)
            if said != path:
                raise ValueError(f"it is message {said} of its file, and {schema.message} is {path}")
        elif framing not in ("none", "header"):
            name, body = _named(body)
            if name != found.name:
                raise ValueError(f"it is message {name!r}, and not {found.name!r}")
        return read(made.FromString(body))

    return decode


def _named(body: bytes) -> tuple[str, bytes]:
    """Splits a body into its message's name and the rest.

    The name is field 1 of a message that comes first, after its length.
    """
    size, at = read_varint(body, 0)
    told = body[at : at + size]
    # This byte says: field 1, with a length.
    length, begin = read_varint(told, 1) if told[:1] == b"\x0a" else (-1, 0)
    if len(told) < size or begin + length != len(told):
        raise ValueError("its frame doesn't name a message, as Apicurio's serializer does by default")
    return told[begin:].decode("utf-8", "replace"), body[at + size :]


def _reader(message: Any) -> Callable[[Any], Any]:
    """Makes a function that turns a message into a value that Arrow accepts."""
    if message.full_name == _TIMESTAMP:
        return _time
    fields = [(field, _value_reader(field)) for field in message.fields]

    def read(value: Any) -> dict[str, Any]:
        return {field.name: _field(value, field, reader) for field, reader in fields}

    return read


def _time(value: Any) -> Any:
    return value.ToDatetime(tzinfo=UTC)


def _field(value: Any, field: Any, read: Callable[[Any], Any]) -> Any:
    if is_map(field):
        return [(key, read(each)) for key, each in getattr(value, field.name).items()]
    if is_repeated(field):
        return [read(each) for each in getattr(value, field.name)]
    if field.has_presence and not value.HasField(field.name):
        return None
    return read(getattr(value, field.name))


def _value_reader(field: Any) -> Callable[[Any], Any]:
    from decimal import Decimal

    if is_map(field):
        field = field.message_type.fields_by_name["value"]
    if field.message_type is not None:
        return _reader(field.message_type)
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))
    return Decimal if field.cpp_type == field.CPPTYPE_UINT64 else lambda value: value
