"""Delayed messages and requests to cancel them as Avro, by the schemas in the folders beside this file; and ticks.

Rules
1. Our notes on a message travel in its header `ps-delay`, the first one: the version of the schema in a byte, the
   Avro, and a checksum (CRC 32). Key, value and the other headers are the user's.
2. A request to cancel is a record of its own, whose header `ps-delay-cancel` is made like `ps-delay`. A tick is a
   record without content, known by its header.
3. A header that can't be decoded, or is of an unknown version, is read as None.
4. A home is an address: the name of the Kafka topic and, behind a `#`, its id. So a topic that was made again doesn't
   get the messages of the one before it. Without an id (of an older version) it is whichever topic has the name.
5. A router reads and writes `ps-delay` of a tier at each hop, so `struct` does it: the numbers come first, and their
   Avro is that of doubles, which are exact up to 2**53. The tests compare it with fastavro's encoding of the schema.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from kafka_pubsub.log.sealed import open_sealed, seal, text_of, write_text
from kafka_pubsub.model import ID_HEADER, Header

__all__ = [
    "CANCEL_HEADER",
    "DEAD_REASON_HEADER",
    "DELAY_HEADER",
    "ID_HEADER",
    "TICK_HEADER",
    "VERSION",
    "DelayCancel",
    "DelayRequest",
    "Delayed",
    "address",
    "decode_cancel",
    "decode_delayed",
    "decode_request",
    "encode_cancel",
    "encode_delayed",
    "encode_request",
    "is_tick",
    "open_delayed",
    "parts_of",
]

#: The header that carries our notes on a delayed message.
DELAY_HEADER = "ps-delay"
#: Why a message is a dead letter of the routers.
DEAD_REASON_HEADER = "ps-delay-dead"
#: The header of a request to cancel.
CANCEL_HEADER = "ps-delay-cancel"
#: The version that is written, of all three.
VERSION = 1

_SCHEMA_HEADER = "ps-schema"

# The version, then the first fields of the schema: due, offset, leaves, left.
_NUMBERS = struct.Struct("<B4d")
_CHECKSUM = struct.Struct(">I")
_NUMBERS_BYTES, _CHECKSUM_BYTES = _NUMBERS.size, _CHECKSUM.size
_pack, _unpack = _NUMBERS.pack, _NUMBERS.unpack_from
_pack_checksum, _unpack_checksum = _CHECKSUM.pack, _CHECKSUM.unpack_from
# Home topics are few, and each is named again and again.
_write_home = lru_cache(1000)(write_text)
_read_home = lru_cache(1000)(text_of)

#: The header of a tick.
TICK_HEADER: Header = (_SCHEMA_HEADER, b"tick/v2")


def address(name: str, topic_id: str) -> str:
    """Returns the address of a topic."""
    return f"{name}#{topic_id}" if topic_id else name


def parts_of(home: str) -> tuple[str, str]:
    """Returns the name in an address and the topic's id; an empty one: it says none."""
    name, _, topic_id = home.partition("#")
    return name, topic_id


class DelayRequest(NamedTuple):
    """A publisher's request: due at a time, or so many milliseconds after the message came in.

    `home` is the address of a topic, here and below.
    """

    home: str
    due: int | None
    delay: int | None


class Delayed(NamedTuple):
    """The notes of a tier's record on its message."""

    home: str
    due: int
    leaves: int
    left: int
    offset: int


class DelayCancel(NamedTuple):
    """A request to cancel the message that came in at the offset `target`, wherever the request is on its way."""

    due: int
    target: int
    offset: int = -1
    leaves: int = 0
    left: int = 0


def encode_request(request: DelayRequest) -> bytes:
    """The value of the header, for ingest."""
    return seal("delay_request", request._asdict(), VERSION)


def decode_request(value: bytes | None) -> DelayRequest | None:
    """The request in a header of ingest; None: it can't be carried out."""
    said = open_sealed("delay_request", VERSION, value)
    if said is None or (said["due"] is None) == (said["delay"] is None) or not said["home"]:
        return None
    return DelayRequest(said["home"], said["due"], said["delay"])


def encode_delayed(delayed: tuple[str, int, int, int, int]) -> bytes:
    """The value of the header, for a tier, from the fields of a `Delayed`."""
    home, due, leaves, left, offset = delayed
    sealed = _pack(VERSION, due, offset, leaves, left) + _write_home(home)
    return sealed + _pack_checksum(crc32(sealed))


def decode_delayed(value: bytes | None) -> Delayed | None:
    """The notes in a header of a tier; None: they can't be decoded."""
    said = None if value is None else open_delayed(value)
    return None if said is None else Delayed(*said)


def open_delayed(value: bytes) -> tuple[str, int, int, int, int] | None:
    """The same as a plain tuple, which takes half as long."""
    try:
        version, due, offset, leaves, left = _unpack(value)
        (checksum,) = _unpack_checksum(value, len(value) - _CHECKSUM_BYTES)
        home = _read_home(value[_NUMBERS_BYTES:-_CHECKSUM_BYTES])
        if checksum != crc32(value[:-_CHECKSUM_BYTES]) or version != VERSION or home is None:
            return None
        if left < 0 or offset < 0:
            return None
        return home, int(due), int(leaves), int(left), int(offset)
    except (struct.error, ValueError, OverflowError):
        return None


def encode_cancel(cancel: DelayCancel) -> bytes:
    """Returns the value of the header of a request to cancel."""
    return seal("delay_cancel", cancel._asdict(), VERSION)


def decode_cancel(value: bytes | None) -> DelayCancel | None:
    """Returns the content of a request to cancel; None: it can't be decoded."""
    said = open_sealed("delay_cancel", VERSION, value)
    return None if said is None or said["target"] < 0 or said["left"] < 0 else DelayCancel(**said)


def is_tick(headers: Sequence[Header]) -> bool:
    """Whether a record with these headers is a tick; those of version 1 said a time, which counts for nothing now."""
    return any(name == _SCHEMA_HEADER and (value or b"").startswith(b"tick/v") for name, value in headers)
