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
    digits, length = F.hex(key), F.length(key)
    whole, rest = F.floor(length / 4).cast("int"), length % 4
    # From 0 to 0 there is one number, so a key without a whole word needs the filter.
    places = F.filter(F.sequence(F.lit(0), F.greatest(whole - 1, F.lit(0))), lambda at: at < whole)
    words = F.transform(places, lambda at: _number(*(_byte(digits, at * 4 + each) for each in (3, 2, 1, 0))))
    last = [F.when(rest > each, _byte(digits, whole * 4 + each)).otherwise("") for each in (2, 1, 0)]
    begun = F.lit(_SEED).bitwiseXOR(length.cast("long"))
    mixed = F.aggregate(words, begun, lambda digest, word: _times(digest).bitwiseXOR(_scrambled(word)))
    ended = _given(
        mixed, lambda digest: F.when(rest > 0, _times(digest.bitwiseXOR(_number(*last)))).otherwise(digest)
    )
    shaken = _given(ended, lambda digest: _times(_folded(digest, 13)))
    return (
        _given(shaken, lambda digest: _folded(digest, 15)).bitwiseAND(F.lit(0x7FFFFFFF)) % partitions
    ).cast("int")


def _byte(digits: Column, at: Column) -> Column:
    return digits.substr(at * 2 + 1, F.lit(2))


def _number(*digits: Column) -> Column:
    return F.conv(F.concat(*digits), 16, 10).cast("long")


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
