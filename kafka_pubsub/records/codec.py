"""The interface of a schema that encodes and decodes the bodies of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

__all__ = ["FORMATS", "Codec", "Format"]

Format = Literal["avro", "json", "protobuf"]

FORMATS: tuple[Format, ...] = ("avro", "json", "protobuf")


class Codec(Protocol):
    """A schema of one format, parsed and found harmless. Bodies are without frames."""

    @property
    def format(self) -> Format:
        """The schema's format."""

    @property
    def text(self) -> str:
        """The schema as it was given."""

    def encode(self, value: object) -> bytes:
        """Returns the body of a value; raises `SchemaError`, with the field's path, if the value doesn't fit.

        `value` is a pydantic model, a dataclass or a mapping, for Protobuf also a generated message. A missing field
        has the schema's default; a field that the schema doesn't have is an error.
        """

    def read_json(self, text: bytes) -> object:
        """Returns the value that a text in JSON means by the schema; raises `SchemaError`, with the field's path."""

    def decode(self, body: bytes, kind: type | None = None, reader: Codec | None = None) -> object:
        """Returns the value of a body; raises `SchemaError` for any body that doesn't fit or is beyond a limit.

        `kind` is the type of the value: a pydantic model, a dataclass or another type that pydantic checks, for
        Protobuf also a generated class (default: None, plain values as dict and list). `reader` is a later or earlier
        version of the schema to which the value is resolved (default: None, the schema by which it was written).
        """

    def decoder(self, kind: type | None, reader: Codec | None, begin: int) -> Callable[[bytes], object]:
        """Returns a function like `decode`, for bodies that begin at the place `begin` of the bytes that it gets."""
