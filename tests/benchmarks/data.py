"""The messages that every row of every scenario sees: the same bytes, keys and interleaving, from the same seed.

A value is 1 KB: the key's number, the message's place in its key, the time it was meant to be sent (0 when it
doesn't matter), then random bytes, so that no compression helps anyone. Nobody compresses anyway.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel

__all__ = [
    "A_KEY_EACH",
    "VALUE_BYTES",
    "Head",
    "Order",
    "Payloads",
    "delays_ms",
    "head",
    "key_name",
    "keys",
    "order_of",
    "places",
]

VALUE_BYTES = 1024
#: Instead of a number of keys: each message has its own key.
A_KEY_EACH = 0
_HEAD = struct.Struct("<IIQ")
# Slices of a random megabyte are as incompressible as fresh bytes, and cost nothing to make.
_POOL_BYTES = 1 << 20


class Head(NamedTuple):
    """The numbers in the first bytes of a value."""

    key: int
    place: int
    intended_ns: int


def head(value: bytes) -> Head:
    """Read a value's head."""
    return Head._make(_HEAD.unpack_from(value))


def key_name(number: int) -> str:
    """The ordering key with this number."""
    return f"key-{number}"


def keys(count: int, distinct: int, seed: int = 1) -> Iterator[int]:
    """The numbers of the keys, message by message, in random order; `A_KEY_EACH`: none twice, in their order."""
    if distinct == A_KEY_EACH:
        return iter(range(count))
    choose = random.Random(seed).randrange
    return (choose(distinct) for _ in range(count))


def delays_ms(count: int, longest: int, seed: int = 4) -> Iterator[int]:
    """Delays in milliseconds, uniform from a tenth of a second up to `longest`."""
    choose = random.Random(seed).randrange
    return (choose(100, longest + 1) for _ in range(count))


def places(numbers: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Each key's number with the message's place in its key."""
    reached: dict[int, int] = {}
    for number in numbers:
        place = reached.get(number, 0)
        reached[number] = place + 1
        yield number, place


class Payloads:
    """Makes values."""

    def __init__(self, seed: int = 2) -> None:
        self._random = random.Random(seed)
        self._pool = self._random.randbytes(_POOL_BYTES)

    def make(self, key: int, place: int, intended_ns: int = 0) -> bytes:
        start = self._random.randrange(_POOL_BYTES - VALUE_BYTES)
        return _HEAD.pack(key, place, intended_ns) + self._pool[start : start + VALUE_BYTES - _HEAD.size]


class Order(BaseModel):
    """The model of the handlers that take one."""

    user: str
    place: int
    cents: int
    items: list[str]
    note: str | None = None


def order_of(key: int, place: int) -> bytes:
    """A body that is an order, some 200 bytes of JSON."""
    items = [f"item-{(key + each) % 97}" for each in range(6)]
    order = Order(
        user=key_name(key),
        place=place,
        cents=place * 100 + 99,
        items=items,
        note="leave it at the door, please",
    )
    return order.model_dump_json().encode()
