"""Delayed messages, requests to cancel them, and ticks as Avro, by the schemas in the folders beside this file.

Rules
1. What we say of a message travels in its header `ps-delay`, the first one: the version of the schema in a byte, the
   Avro, and a checksum (CRC 32). Key, value and the other headers are the user's.
2. A request to cancel is a record of its own, whose header `ps-delay-cancel` is made like `ps-delay`. So is a tick; its
   header `ps-schema` names its schema and version.
3. What can't be decoded is None, and so is what is of an unknown version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_pubsub.model import Header
from kafka_pubsub.schema.sealed import open_sealed, read, seal, write

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
    "TickRecord",
    "decode_cancel",
    "decode_delayed",
    "decode_request",
    "decode_tick",
    "encode_cancel",
    "encode_delayed",
    "encode_request",
    "encode_tick",
    "is_tick",
]

#: The header that carries what we say of a delayed message.
DELAY_HEADER = "ps-delay"
#: The header that names a message at home: the place where it came in.
ID_HEADER = "ps-id"
#: Why a message is a dead letter of the routers.
DEAD_REASON_HEADER = "ps-delay-dead"
#: The header of a request to cancel.
CANCEL_HEADER = "ps-delay-cancel"
#: The version that is written, of all four.
VERSION = 1

_SCHEMA_HEADER = "ps-schema"

#: The header of a tick.
TICK_HEADER: Header = (_SCHEMA_HEADER, f"tick/v{VERSION}".encode())


class DelayRequest(NamedTuple):
    """What a publisher asks for: due at a time, or so many milliseconds after the message came in."""

    home: str
    due: int | None
    delay: int | None


class Delayed(NamedTuple):
    """What a tier's record says of its message."""

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


class TickRecord(NamedTuple):
    """The time when a router had read everything below the offset `read`."""

    time: int
    read: int


def encode_request(request: DelayRequest) -> bytes:
    """The value of the header, for ingest."""
    return seal("delay_request", request._asdict(), VERSION)


def decode_request(value: bytes | None) -> DelayRequest | None:
    """What a header of ingest says; None: it says nothing that could be done."""
    said = open_sealed("delay_request", VERSION, value)
    if said is None or (said["due"] is None) == (said["delay"] is None) or not said["home"]:
        return None
    return DelayRequest(said["home"], said["due"], said["delay"])


def encode_delayed(delayed: Delayed) -> bytes:
    """The value of the header, for a tier."""
    home, due, leaves, left, offset = delayed
    fields = {"home": home, "due": due, "leaves": leaves, "left": left, "offset": offset}
    return seal("delayed", fields, VERSION)


def decode_delayed(value: bytes | None) -> Delayed | None:
    """What a header of a tier says; None: nothing can be made of it."""
    said = open_sealed("delayed", VERSION, value)
    if said is None or said["left"] < 0 or said["offset"] < 0:
        return None
    return Delayed(said["home"], said["due"], said["leaves"], said["left"], said["offset"])


def encode_cancel(cancel: DelayCancel) -> bytes:
    """Returns the value of the header of a request to cancel."""
    return seal("delay_cancel", cancel._asdict(), VERSION)


def decode_cancel(value: bytes | None) -> DelayCancel | None:
    """Returns what the header of a request to cancel says; None: nothing can be made of it."""
    said = open_sealed("delay_cancel", VERSION, value)
    return None if said is None or said["target"] < 0 or said["left"] < 0 else DelayCancel(**said)


def encode_tick(tick: TickRecord) -> bytes:
    """The value of a tick's record."""
    return write("tick", tick._asdict(), VERSION)


def is_tick(headers: Sequence[Header]) -> bool:
    """Whether a record with these headers is a tick, of whatever version."""
    return any(name == _SCHEMA_HEADER and (value or b"").startswith(b"tick/v") for name, value in headers)


def decode_tick(value: bytes | None) -> TickRecord | None:
    """What a tick says; None: nothing can be made of it."""
    said = None if value is None else read("tick", VERSION, value)
    return None if said is None else TickRecord(**said)
