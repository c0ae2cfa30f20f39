"""How a message says by which schema its body was written.

Two framings. "confluent": the body begins with a zero byte and the schema's number in the registry (4 bytes), as
Confluent's serializers write it. "header": the body stays bare, and the header `record-schema` has the schema's number
in the registry (`17`), or its subject and number in a folder (`order/3`).

Rules
1. A reader needs nothing but the message: the header goes first, then the zero byte.
2. Text of a message is never used as a path: a subject is one name, a number has at most ten digits.
3. Confluent's own header (`__value_schema_id`: a byte and the schema's identifier of 16 bytes, or a byte and its
   number) is read too. Behind it stands the place of a Protobuf message, which a frame has before the body.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kafka_pubsub.errors import BadRecord, InvalidArgument
from kafka_pubsub.model import Header

__all__ = [
    "CONFLUENT_HEADER",
    "FRAME",
    "RECORD_HEADER",
    "SCHEMA_HEADERS",
    "SchemaId",
    "check_subject",
    "frame",
    "is_framed",
    "split",
]

#: The header with the schema of a bare body.
RECORD_HEADER: Final = "record-schema"
#: The same of Confluent's clients, where they put it into a header.
CONFLUENT_HEADER: Final = "__value_schema_id"
SCHEMA_HEADERS: Final = frozenset({RECORD_HEADER, CONFLUENT_HEADER})

_PREFIX = struct.Struct(">bI")
#: The bytes of a frame.
FRAME: Final = _PREFIX.size
_NUMBER = re.compile(r"\d{1,10}")
#: The largest number that registries give.
_LARGEST = 2**31 - 1
_IN_FOLDER = re.compile(r"([A-Za-z0-9._-]{1,249})/(\d{1,10})")


class SchemaId(NamedTuple):
    """Names a schema: by `number` in a registry or below a `subject` of a folder, or by `guid` in a registry."""

    number: int
    subject: str | None = None
    guid: str | None = None

    def __str__(self) -> str:
        if self.guid is not None:
            return self.guid
        return str(self.number) if self.subject is None else f"{self.subject}/{self.number}"


def check_subject(subject: str) -> str:
    """Returns the subject; raises `InvalidArgument` if it can't be the name of a folder's sub-folder."""
    if not _IN_FOLDER.fullmatch(f"{subject}/1") or subject in {".", ".."}:
        raise InvalidArgument(
            f"schema: {subject!r} can't be a subject of a folder: use letters, digits, dots, dashes and underscores"
        )
    return subject


def frame(number: int) -> bytes:
    """Returns the frame that Confluent's clients put before a body."""
    return _PREFIX.pack(0, number)


def is_framed(headers: Sequence[Header], body: bytes) -> bool:
    """Returns whether a message seems to say its schema; without reading it."""
    if body[:1] == b"\0":
        return True
    return bool(headers) and any(name in SCHEMA_HEADERS for name, _ in headers)


def split(headers: Iterable[Header], body: bytes) -> tuple[SchemaId, bytes, bool]:
    """Returns a message's schema, the body behind its frame, and whether a Protobuf message's place comes first in it.

    Raises `BadRecord` if the message doesn't say its schema.
    """
    said = dict(headers)
    if RECORD_HEADER in said:
        return _read_header(said[RECORD_HEADER]), body, False
    if CONFLUENT_HEADER in said:
        schema, place = _read_confluent_header(said[CONFLUENT_HEADER])
        return schema, place + body, bool(place)
    if body[:1] == b"\0" and len(body) >= _PREFIX.size:
        return _numbered(_PREFIX.unpack_from(body)[1]), body[_PREFIX.size :], True
    begins = f"its body begins with {body[:8]!r}" if body else "its body is empty"
    raise BadRecord(
        f"it doesn't say its schema: it has no header {RECORD_HEADER}, and {begins} in place of a zero byte and a "
        "number"
    )


def _numbered(number: int) -> SchemaId:
    if number > _LARGEST:
        raise BadRecord(f"its schema's number is {number}, more than registries have")
    return SchemaId(number)


def _read_header(value: bytes | None) -> SchemaId:
    text = (value or b"").decode("utf-8", "replace")
    if _NUMBER.fullmatch(text):
        return _numbered(int(text))
    if (found := _IN_FOLDER.fullmatch(text)) and found[1] not in {".", ".."}:
        return SchemaId(int(found[2]), found[1])
    raise BadRecord(f"its header {RECORD_HEADER} is {text[:80]!r}, neither a number nor SUBJECT/NUMBER")


def _read_confluent_header(value: bytes | None) -> tuple[SchemaId, bytes]:
    """Returns the schema, and the bytes behind it."""
    raw = value or b""
    if len(raw) >= 17 and raw[0] == 1:
        return SchemaId(0, guid=str(UUID(bytes=raw[1:17]))), raw[17:]
    if len(raw) >= _PREFIX.size and raw[0] == 0:
        return _numbered(_PREFIX.unpack_from(raw)[1]), raw[_PREFIX.size :]
    raise BadRecord(f"its header {CONFLUENT_HEADER} has {len(raw)} bytes that name no schema")
