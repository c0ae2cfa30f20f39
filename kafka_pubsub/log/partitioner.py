"""The partition of a keyed record: the same as the Java client's default partitioner chooses.

Theory: an ordering key keeps its order only while every producer, ours or not, puts it into the same partition.
Kafka's producers agree on 32-bit murmur2 with one fixed seed, made positive by clearing the sign bit.

Rules
1. The result depends on the key's bytes and the partition count alone; an empty key is a key.
2. The partition of a record without a key is the writer's choice.
"""

from __future__ import annotations

__all__ = ["key_into", "murmur2", "partition_of"]

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24


def murmur2(data: bytes) -> int:
    """Returns the 32-bit murmur2 of the bytes, unsigned, with the seed that Kafka's clients share."""
    length = len(data)
    digest = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = (int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER) & _MASK
        word = ((word ^ (word >> _SHIFT)) * _MULTIPLIER) & _MASK
        digest = ((digest * _MULTIPLIER) & _MASK) ^ word
    if whole != length:
        digest = ((digest ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER) & _MASK
    digest = ((digest ^ (digest >> 13)) * _MULTIPLIER) & _MASK
    return digest ^ (digest >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a key among `partitions` (at least 1)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def key_into(partition: int, partitions: int) -> bytes:
    """Returns a key that every producer puts into that partition."""
    number = 0
    while partition_of(b"%d" % number, partitions) != partition:
        number += 1
    return b"%d" % number
