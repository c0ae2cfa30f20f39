"""Where a Protobuf message stands in its file, as Confluent's frame says it between the schema's id and the body.

A path is the message's number in the file and then, for an inner message, its number in each outer one: [0], [2, 1].
The frame has the count of the numbers and the numbers, or a zero byte for [0].

Rule: this module imports nothing, because Spark's executors use it too. So questions about a field stand here as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

__all__ = [
    "Descriptor",
    "is_map",
    "is_repeated",
    "join_index",
    "path_of_message",
    "read_varint",
    "split_index",
]

#: A message's descriptor, of the package protobuf.
Descriptor: TypeAlias = Any

_MOST_NUMBERS = 100


def is_repeated(field: Descriptor) -> bool:
    """Returns whether a field has several values; a map's has, too."""
    # Versions of protobuf below 6.31 have only the label, a number.
    told = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if told is None else told)


def is_map(field: Descriptor) -> bool:
    """Returns whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def path_of_message(message: Descriptor) -> list[int]:
    """Returns the path of a message by its descriptor (`Order.DESCRIPTOR`)."""
    outer = message.containing_type
    if outer is None:
        return [list(message.file.message_types_by_name).index(message.name)]
    return [*path_of_message(outer), [each.name for each in outer.nested_types].index(message.name)]


def join_index(path: Sequence[int]) -> bytes:
    """Returns a path as the frame has it."""
    return b"\x00" if list(path) == [0] else b"".join(_varint(number) for number in (len(path), *path))


def split_index(body: bytes) -> tuple[list[int], bytes]:
    """Splits the bytes behind a schema's id into the message's path and the body; raises `ValueError`."""
    count, at = _signed(body, 0)
    if not 0 <= count <= _MOST_NUMBERS:
        raise ValueError("what its frame says of the message is broken")
    if count == 0:
        return [0], body[at:]
    path = []
    for _ in range(count):
        number, at = _signed(body, at)
        path.append(number)
    return path, body[at:]


def _varint(number: int) -> bytes:
    number, written = number << 1, bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _signed(body: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(body, at)
    return (value >> 1) ^ -(value & 1), at


def read_varint(body: bytes, at: int, bits: int = 35) -> tuple[int, int]:
    """Reads a number of up to so many bits; also returns where the next byte is. Raises `ValueError`."""
    value = 0
    for shift in range(0, bits, 7):
        if at >= len(body):
            break
        value |= (body[at] & 0x7F) << shift
        at += 1
        if body[at - 1] < 0x80:
            return value, at
    raise ValueError("what its frame says of the message is broken")
