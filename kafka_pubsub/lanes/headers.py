"""The headers of messages in lanes: which publisher sent a message as which, and which messages it comes after.

A message is *named* by its number, which counts the messages of one publisher to one topic, all lanes together; by its
offset; and by the id of the log in which it has that offset. The number says what is earlier. The offset says how far
a log must be read, and only in the log with that id: a copy has other offsets.

`ps-seq` is `2.PUBLISHER.NUMBER`, and, where the publisher has messages in the other class of the same priority and
partition, `.NUMBER.OFFSET.LOG` of the last one that was stored there. `ps-after` is `2.LANE.NUMBER.OFFSET.LOG`, with
one such name for each other lane in which the publisher has messages of the key, parted by semicolons; a lane is `p7`
or `t4`.

Rule: a header of another version, or one that can't be read, says nothing. Another program may have written it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.model import Header

__all__ = [
    "AFTER_HEADER",
    "SEQUENCE_HEADER",
    "Name",
    "Sent",
    "after_header",
    "read_lane_headers",
    "sequence_header",
]

SEQUENCE_HEADER = "ps-seq"
AFTER_HEADER = "ps-after"

_SEQUENCE = re.compile(rb"2\.([^.]+)\.(\d+)(?:\.(\d+)\.(\d+)\.(.*))?", re.DOTALL)
_AFTER = re.compile(rb"([pt])(\d)\.(\d+)\.(\d+)\.(.*)", re.DOTALL)


class Name(NamedTuple):
    """An earlier message of the same publisher. `log`: the id of the log where it has this offset; "": unknown."""

    number: int
    offset: int
    log: str = ""


class Sent(NamedTuple):
    """A message's publisher, its number there, and the publisher's last one of the other class; None: it has none."""

    publisher: str
    number: int
    other: Name | None = None


def sequence_header(sent: Sent) -> Header:
    """Returns the header of a publisher's message; a publisher's name has no dot."""
    other = "" if sent.other is None else "." + _text(sent.other)
    return SEQUENCE_HEADER, f"2.{sent.publisher}.{sent.number}{other}".encode()


def after_header(names: Mapping[Lane, Name]) -> Header:
    """Returns the header of a message that comes after earlier ones of its key in other lanes."""
    said = (f"{'p' if lane.durable else 't'}{lane.priority}.{_text(name)}" for lane, name in names.items())
    return AFTER_HEADER, f"2.{';'.join(said)}".encode()


def _text(name: Name) -> str:
    return f"{name.number}.{name.offset}.{name.log}"


def read_lane_headers(headers: Iterable[Header] | None) -> tuple[Sent | None, Mapping[Lane, Name]]:
    """Returns a message's publisher and number, and by lane what it comes after."""
    sent, after = None, dict[Lane, Name]()
    for name, value in headers or ():
        if name == SEQUENCE_HEADER and value is not None:
            sent = _read_sequence(value)
        elif name == AFTER_HEADER and value is not None:
            after = _read_after(value)
    return sent, after


def _read_sequence(value: bytes) -> Sent | None:
    if (found := _SEQUENCE.fullmatch(value)) is None:
        return None
    publisher, number, *other = found.groups()
    return Sent(_decode(publisher), int(number), None if other[0] is None else _name(*other))


def _read_after(value: bytes) -> dict[Lane, Name]:
    version, _, rest = value.partition(b".")
    found = [_AFTER.fullmatch(each) for each in rest.split(b";")]
    if version != b"2":
        return {}
    return {
        Lane(int(each[2]), each[1] == b"p"): _name(each[3], each[4], each[5])
        for each in found
        if each is not None
    }


def _name(number: bytes, offset: bytes, log: bytes) -> Name:
    return Name(int(number), int(offset), _decode(log))


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
