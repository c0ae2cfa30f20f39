"""Computes the partition of a key as a Spark expression: `log/partitioner.py` for the executors' JVM.

Rule: no step exceeds 64 bits, because an overflow is an error in Spark's ANSI mode. So products are computed in two
halves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

__all__ = ["partition_of"]

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def partition_of(key: Column, partitions: int) -> Column:
    """Returns the partition, of `partitions`, into which publishing puts a key (bytes)."""
    length = F.length(key)
    whole, rest = F.floor(length / 4).cast("int"), length % 4
    # The sequence from 0 to 0 has one number; the filter removes it for a key of less than 4 bytes.
    places = F.filter(F.sequence(F.lit(0), F.greatest(whole - 1, F.lit(0))), lambda at: at < whole)
    words = F.transform(places, lambda at: _reversed(_number(key, at * 4, F.lit(4))))
    begun = F.lit(_SEED).bitwiseXOR(length.cast("long"))
    mixed = F.aggregate(words, begun, lambda digest, word: _times(digest).bitwiseXOR(_scrambled(word)))
    # The last one to three bytes count as if zeros followed them.
    missing = F.when(rest == 1, F.lit(1 << 24)).when(rest == 2, F.lit(1 << 16)).otherwise(F.lit(1 << 8))
    last = _reversed(_number(key, whole * 4, rest) * missing.cast("long"))
    ended = F.when(rest > 0, _given(mixed.bitwiseXOR(last), _times)).otherwise(mixed)
    shaken = _given(ended, lambda digest: _times(_folded(digest, 13)))
    folded = _given(shaken, lambda digest: _folded(digest, 15))
    return (folded.bitwiseAND(F.lit(0x7FFFFFFF)) % partitions).cast("int")


def _number(key: Column, at: Column, count: Column) -> Column:
    """Returns bytes of the key as a number, with the first byte as the highest."""
    return F.conv(F.hex(key.substr(at + 1, count)), 16, 10).cast("long")


def _reversed(number: Column) -> Column:
    """Reverses the order of a number's four bytes."""
    return _given(
        number,
        lambda each: (
            F.shiftleft(each.bitwiseAND(F.lit(0xFF)), 24)
            + F.shiftleft(each.bitwiseAND(F.lit(0xFF00)), 8)
            + F.shiftright(each, 8).bitwiseAND(F.lit(0xFF00))
            + F.shiftright(each, 24)
        ),
    )


def _scrambled(word: Column) -> Column:
    return _given(_times(word), lambda product: _times(_folded(product, 24)))


def _folded(number: Column, bits: int) -> Column:
    return number.bitwiseXOR(F.shiftright(number, bits))


def _times(number: Column) -> Column:
    """Returns the lower 32 bits of the number times murmur2's multiplier."""
    high = (F.shiftright(number, 16) * _MULTIPLIER).bitwiseAND(F.lit(0xFFFF))
    low = number.bitwiseAND(F.lit(0xFFFF)) * _MULTIPLIER
    return (F.shiftleft(high, 16) + low).bitwiseAND(F.lit(_MASK))


def _given(value: Column, use: Callable[[Column], Column]) -> Column:
    """Returns `use(value)`, but computes the value only once; Spark computes an expression wherever it is used."""
    return F.transform(F.array(value), use)[0]
