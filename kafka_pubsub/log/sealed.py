"""Our records as Avro, by the schemas in `schemas/`; in headers with a version and a checksum.

Rules
1. A header's value is the version of the schema in a byte, the Avro, and a checksum (CRC 32) over both.
2. What can't be decoded is None, and so is what is of an unknown version. `newer_version` tells these apart: what a
   newer program of ours wrote must not be taken for rubbish.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

__all__ = [
    "newer_version",
    "open_sealed",
    "read",
    "schema_folder",
    "schema_text",
    "seal",
    "text_of",
    "write",
    "write_text",
]

_CHECKSUM_BYTES = 4
_RUBBISH = (EOFError, ValueError, IndexError, OverflowError, TypeError, KeyError)


def schema_text(kind: str, version: int) -> str:
    """Returns the schema of a kind of record, as JSON."""
    return schema_folder().joinpath(kind, f"v{version}.avsc").read_text(encoding="utf-8")


def schema_folder() -> Traversable:
    """Returns the folder of our schemas: in the package where it is installed, beside it in a checkout."""
    installed = files("kafka_pubsub").joinpath("schemas")
    return installed if installed.is_dir() else Path(__file__).parents[2] / "schemas"


@cache
def _schema(kind: str, version: int) -> dict[str, Any]:
    import fastavro

    return cast("dict[str, Any]", fastavro.parse_schema(json.loads(schema_text(kind, version))))


def write_text(text: str) -> bytes:
    """Returns a string as Avro."""
    import fastavro

    body = io.BytesIO()
    fastavro.schemaless_writer(body, "string", text)
    return body.getvalue()


def text_of(value: bytes) -> str | None:
    """Returns the string of Avro; None: it isn't one."""
    import fastavro

    body = io.BytesIO(value)
    try:
        text = fastavro.schemaless_reader(body, "string", None)
    except _RUBBISH:
        return None
    return None if body.read(1) else cast("str", text)


def write(kind: str, fields: Mapping[str, object], version: int) -> bytes:
    """Returns the fields as Avro."""
    import fastavro

    body = io.BytesIO()
    fastavro.schemaless_writer(body, _schema(kind, version), fields)
    return body.getvalue()


def read(kind: str, version: int, value: bytes) -> dict[str, Any] | None:
    """Returns the fields of Avro; None: it can't be read."""
    import fastavro

    body = io.BytesIO(value)
    try:
        said = fastavro.schemaless_reader(body, _schema(kind, version), None)
    except _RUBBISH:
        return None
    return None if body.read(1) else cast("dict[str, Any]", said)


def seal(kind: str, fields: Mapping[str, object], version: int) -> bytes:
    """Returns the fields as the value of a header."""
    sealed = bytes([version]) + write(kind, fields, version)
    return sealed + zlib.crc32(sealed).to_bytes(_CHECKSUM_BYTES, "big")


def newer_version(newest: int, value: bytes | None) -> int | None:
    """Returns the version of a header's value with a good checksum, if it is above the newest that is known here."""
    if value is None or len(value) <= _CHECKSUM_BYTES or value[0] <= newest:
        return None
    checksum = int.from_bytes(value[-_CHECKSUM_BYTES:], "big")
    return value[0] if zlib.crc32(value[:-_CHECKSUM_BYTES]) == checksum else None


def open_sealed(kind: str, newest: int, value: bytes | None) -> dict[str, Any] | None:
    """Returns the fields of a header's value of a version up to the newest; None: it can't be read."""
    if value is None or len(value) <= _CHECKSUM_BYTES:
        return None
    body, checksum = value[:-_CHECKSUM_BYTES], value[-_CHECKSUM_BYTES:]
    if zlib.crc32(body) != int.from_bytes(checksum, "big") or not 1 <= body[0] <= newest:
        return None
    return read(kind, body[0], body[1:])
