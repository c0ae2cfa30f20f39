"""The schemas that classes bring with them.

A class made with dataclasses-avroschema has `avro_schema()`; a Protobuf message has its descriptor; pydantic makes a
JSON Schema of its models and of dataclasses.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import lru_cache

from pydantic import BaseModel, TypeAdapter

from kafka_pubsub.errors import InvalidArgument, SchemaError
from kafka_pubsub.records.codec import Codec, Format
from kafka_pubsub.records.parsing import parse_schema

__all__ = ["format_of", "is_message", "schema_of"]


def format_of(kind: type) -> Format:
    """Returns the format of the schema that a class brings; raises `InvalidArgument` if it brings none."""
    if _avro_schema(kind) is not None:
        return "avro"
    if is_message(kind):
        return "protobuf"
    if issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind):
        return "json"
    raise InvalidArgument(
        f"schema: {kind.__name__} brings none: give a pydantic model or dataclass (a JSON Schema is made of it), a "
        "class of dataclasses-avroschema, or a generated Protobuf message; or name a file"
    )


@lru_cache(maxsize=1000)
def schema_of(kind: type | None, format_: Format, *, own: bool = True) -> Codec | None:
    """Returns the schema that a class brings in this format; None: it brings none.

    `own` (default True): only one that is written into the class, not a JSON Schema that pydantic would make of it.
    """
    if kind is None:
        return None
    if format_ == "avro":
        text = _avro_schema(kind)
        return None if text is None else parse_schema("avro", text())
    if format_ == "protobuf":
        return _of_message(kind) if is_message(kind) else None
    if own:
        return None
    try:
        return parse_schema("json", json.dumps(TypeAdapter(kind).json_schema()))
    except SchemaError:
        raise
    except Exception as error:
        raise SchemaError(f"schema: pydantic makes no JSON Schema of {kind.__name__}: {error}") from error


def _avro_schema(kind: type) -> Callable[[], str] | None:
    found: Callable[[], str] | None = getattr(kind, "avro_schema", None)
    return found if callable(found) else None


def is_message(kind: object) -> bool:
    """Returns whether it is the class of a Protobuf message."""
    return hasattr(kind, "DESCRIPTOR") and hasattr(kind, "SerializeToString")


def _of_message(kind: type) -> Codec:
    from kafka_pubsub.records.message_index import path_of_message
    from kafka_pubsub.records.protobuf import ProtobufCodec, text_of_message

    return ProtobufCodec(text_of_message(kind), {}, path_of_message(kind.DESCRIPTOR))  # type: ignore[attr-defined]
