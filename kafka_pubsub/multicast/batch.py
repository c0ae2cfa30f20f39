"""The messages of a batch in the value of its stage's record: fields of fixed length, then the bytes.

The version (a byte) and the number of messages; for each message its time, then of each the length of its key (-1:
none), of each that of its headers, of each that of its body; all keys, all headers, all bodies; a checksum (CRC 32)
over everything. Headers are length of the name, length of the value (-1: none), name, value, again and again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka_pubsub.model import Header

__all__ = [
    "BATCH_OVERHEAD",
    "BatchMessage",
    "batch_size",
    "count_of_batch",
    "decode_batch",
    "encode_batch",
    "is_newer_batch",
]

_VERSION = 1
_HEAD = struct.Struct(">BI")
_EACH = struct.Struct(">qiII").size
_HEADER = struct.Struct(">Ii")
_CHECKSUM = struct.Struct(">I")
#: Bytes of a batch beside its messages.
BATCH_OVERHEAD = _HEAD.size + _CHECKSUM.size


class BatchMessage(NamedTuple):
    """A message of a batch. `time`: when it was published, in milliseconds since 1970."""

    time: int
    key: bytes | None
    data: bytes
    headers: Sequence[Header]


def batch_size(message: BatchMessage) -> int:
    """Returns how many bytes a message takes in a batch, or some more if its headers' names aren't ASCII."""
    size = _EACH + len(message.data) + len(message.key or b"")
    for name, value in message.headers:
        size += _HEADER.size + 4 * len(name) + len(value or b"")
    return size


def count_of_batch(value: bytes | None) -> int:
    """Returns how many messages a batch has, without reading them; 1 where that isn't said."""
    if value is None or len(value) < BATCH_OVERHEAD:
        return 1
    version, count = _HEAD.unpack_from(value)
    return int(count) if version == _VERSION else 1


def is_newer_batch(value: bytes | None) -> bool:
    """Returns whether the value is of a version that isn't known yet, and whole."""
    if value is None or len(value) <= BATCH_OVERHEAD or value[0] <= _VERSION:
        return False
    body = memoryview(value)[: -_CHECKSUM.size]
    return bool(zlib.crc32(body) == _CHECKSUM.unpack_from(value, len(value) - _CHECKSUM.size)[0])


def encode_batch(messages: Sequence[BatchMessage]) -> bytes:
    """Returns the value of the record of a stage."""
    count = len(messages)
    times, keys, bodies, headers = zip(*messages, strict=True)
    packed = [_pack(each) if each else b"" for each in headers]
    parts = [
        _HEAD.pack(_VERSION, count),
        struct.pack(f">{count}q", *times),
        struct.pack(f">{count}i", *[-1 if key is None else len(key) for key in keys]),
        struct.pack(f">{2 * count}I", *map(len, packed), *map(len, bodies)),
        *filter(None, keys),
        *packed,
        *bodies,
    ]
    value = b"".join(parts)
    return value + _CHECKSUM.pack(zlib.crc32(value))


def decode_batch(value: bytes | None) -> list[BatchMessage] | None:
    """Returns the messages of a stage's record; None: they can't be read."""
    if value is None or len(value) <= BATCH_OVERHEAD:
        return None
    end = len(value) - _CHECKSUM.size
    version, count = _HEAD.unpack_from(value)
    at = _HEAD.size + count * _EACH
    if version != _VERSION or not count or at > end:
        return None
    if zlib.crc32(memoryview(value)[:end]) != _CHECKSUM.unpack_from(value, end)[0]:
        return None
    said = struct.unpack_from(f">{count}q{count}i{2 * count}I", value, _HEAD.size)
    times, key_lengths = said[:count], said[count : 2 * count]
    lengths = [max(0, length) for length in key_lengths], said[2 * count : 3 * count], said[3 * count :]
    if min(key_lengths) < -1 or at + sum(map(sum, lengths)) != end:
        return None
    parts = _cut(value, at, [length for some in lengths for length in some])
    keys: Sequence[bytes | None] = parts[:count]
    if -1 in key_lengths:
        keys = [None if length < 0 else key for key, length in zip(keys, key_lengths, strict=True)]
    try:
        headers = [_unpack(each) if each else [] for each in parts[count : 2 * count]]
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return list(map(BatchMessage, times, keys, parts[2 * count :], headers))


def _cut(value: bytes, at: int, lengths: Sequence[int]) -> list[bytes]:
    found = []
    for length in lengths:
        found.append(value[at : at + length])
        at += length
    return found


def _pack(headers: Sequence[Header]) -> bytes:
    return b"".join(_pack_each(headers))


def _pack_each(headers: Sequence[Header]) -> Iterator[bytes]:
    for name, value in headers:
        encoded = name.encode()
        yield _HEADER.pack(len(encoded), -1 if value is None else len(value))
        yield encoded
        yield value or b""


def _unpack(packed: bytes) -> list[Header]:
    found: list[Header] = []
    at = 0
    while at < len(packed):
        name_length, length = _HEADER.unpack_from(packed, at)
        at += _HEADER.size
        middle, end = at + name_length, at + name_length + max(0, length)
        if end > len(packed) or length < -1:
            raise ValueError
        found.append((packed[at:middle].decode(), None if length < 0 else packed[middle:end]))
        at = end
    return found
