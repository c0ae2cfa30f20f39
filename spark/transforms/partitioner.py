"""Which partition publishing puts a key into, as an expression: `core/partitioner.py` on the executors' JVM.

Rule: no step leaves 64 bits, since an overflow is an error in Spark's ANSI mode: a product is made of two halves.
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
    """The partition of a key (bytes) among `partitions`."""
    length = F.length(key)
    whole, rest = F.floor(length / 4).cast("int"), length % 4
    # From 0 to 0 there is one number, so a key without a whole word needs the filter.
    places = F.filter(F.sequence(F.lit(0), F.greatest(whole - 1, F.lit(0))), lambda at: at < whole)
    words = F.transform(places, lambda at: _reversed(_number(key, at * 4, F.lit(4))))
    begun = F.lit(_SEED).bitwiseXOR(length.cast("long"))
    mixed = F.aggregate(words, begun, lambda digest, word: _times(digest).bitwiseXOR(_scrambled(word)))
    # As if zeros followed the last one to three bytes.
    missing = F.when(rest == 1, F.lit(1 << 24)).when(rest == 2, F.lit(1 << 16)).otherwise(F.lit(1 << 8))
    last = _reversed(_number(key, whole * 4, rest) * missing.cast("long"))
    ended = F.when(rest > 0, _given(mixed.bitwiseXOR(last), _times)).otherwise(mixed)
    shaken = _given(ended, lambda digest: _times(_folded(digest, 13)))
    folded = _given(shaken, lambda digest: _folded(digest, 15))
    return (folded.bitwiseAND(F.lit(0x7FFFFFFF)) % partitions).cast("int")


def _number(key: Column, at: Column, count: Column) -> Column:
    """Bytes of the key as a number, the first one the highest."""
    return F.conv(F.hex(key.substr(at + 1, count)), 16, 10).cast("long")


def _reversed(number: Column) -> Column:
    """The number with its four bytes in the other order."""
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
    """The lower 32 bits of the number times murmur2's multiplier."""
    high = (F.shiftright(number, 16) * _MULTIPLIER).bitwiseAND(F.lit(0xFFFF))
    low = number.bitwiseAND(F.lit(0xFFFF)) * _MULTIPLIER
    return (F.shiftleft(high, 16) + low).bitwiseAND(F.lit(_MASK))


def _given(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`, with the value computed once: an expression that stands in several places is computed in each."""
    return F.transform(F.array(value), use)[0]
