"""The places of schemas: the calls that a registry and a folder have in common."""

from __future__ import annotations

import json
from typing import NamedTuple, Protocol

from kafka_pubsub.records.codec import Codec
from kafka_pubsub.records.frames import SchemaId

__all__ = ["Registered", "SchemaSource", "same_schema"]


class Registered(NamedTuple):
    """A schema, and its name."""

    id: SchemaId
    codec: Codec


class SchemaSource(Protocol):
    """A registry or a folder; `str()` names it in errors. Any thread may call."""

    #: Whether a number names a schema by itself, without its subject.
    numbers_alone: bool

    def subject_of(self, topic: str) -> str:
        """Returns the subject of a topic's records unless another one is named."""
        ...

    def knows(self, schema: SchemaId) -> bool:
        """Returns whether `find` answers at once."""
        ...

    def find(self, schema: SchemaId) -> Codec:
        """Returns the schema that a message names; raises `BadRecord` or `NotFound` if there is none."""
        ...

    def latest(self, subject: str) -> Registered:
        """Returns the last schema of a subject; raises `NotFound` if it has none."""
        ...

    def look_up(self, subject: str, codec: Codec) -> Registered:
        """Returns the name of a schema of the subject; raises `NotFound` if the subject doesn't have it."""
        ...

    def register(self, subject: str, codec: Codec) -> Registered:
        """Adds a schema to the subject if it isn't there; raises `SchemaError` if it isn't compatible."""
        ...

    def close(self) -> None: ...


def same_schema(one: Codec, other: Codec) -> bool:
    """Returns whether two schemas are the same, apart from white space and a `.proto` file's name and comments."""
    if one.format != other.format:
        return False
    if one.format == "protobuf":
        from kafka_pubsub.records.protobuf import ProtobufCodec

        assert isinstance(one, ProtobufCodec)
        assert isinstance(other, ProtobufCodec)
        return one.same_file(other)
    found: bool = json.loads(one.text) == json.loads(other.text)
    return found
