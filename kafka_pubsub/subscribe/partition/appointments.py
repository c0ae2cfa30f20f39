"""When parked keys are to be looked at: each when a number is reached, a moment or an offset of home.

Theory. A million keys may wait for an hour. So an appointment is a place in the list of its span of numbers, eight
bytes; only the appointments of spans that have begun are kept in order, with their numbers.

Rules
1. A key whose number changes gets a new appointment. The old one is dropped when its span begins, or leads to one
   needless look; appointments that don't count are swept when they outnumber the keys.
2. A key may be looked at once too often, never once too rarely.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from heapq import heapify, heappop, heappush

from kafka_pubsub.subscribe.partition.key_line import FEW

__all__ = ["Appointments"]


class Appointments:
    """The appointments of a kind."""

    def __init__(self, keys: Sized, number_of: Callable[[bytes], int | None], bits: int) -> None:
        """`keys`: all that may have one; `number_of`: a key's number now; `bits`: a span is 2 to that power."""
        self._keys = keys
        self._number_of = number_of
        self._bits = bits
        self._count = 0
        #: Keys by span, and the spans as a heap.
        self._later: dict[int, list[bytes]] = {}
        self._spans: list[int] = []
        #: The appointments of spans that have begun, as a heap.
        self._soon: list[tuple[int, bytes]] = []
        self._begun = -1

    def __len__(self) -> int:
        return self._count

    def add(self, number: int, key: bytes) -> None:
        """Adds an appointment: the key is to be looked at when the number is reached."""
        self._count += 1
        span = number >> self._bits
        if span <= self._begun:
            heappush(self._soon, (number, key))
        elif (keys := self._later.get(span)) is not None:
            keys.append(key)
        else:
            self._later[span] = [key]
            heappush(self._spans, span)
        if self._count > FEW + 2 * len(self._keys):
            self._sweep()

    def next(self) -> int | None:
        """Returns the number at which to ask again; perhaps too early, never too late."""
        if self._soon:
            return self._soon[0][0]
        return self._spans[0] << self._bits if self._spans else None

    def come(self, number: int) -> list[bytes]:
        """Returns the keys whose number is reached, `number` included."""
        keys: dict[bytes, None] = {}
        self._take(number, keys)
        while self._spans and self._spans[0] << self._bits <= number:
            self._begin(heappop(self._spans))
            self._take(number, keys)
        return list(keys)

    def _take(self, number: int, keys: dict[bytes, None]) -> None:
        while self._soon and self._soon[0][0] <= number:
            key = heappop(self._soon)[1]
            self._count -= 1
            now = self._number_of(key)
            if now is not None and now <= number:
                keys[key] = None

    def _begin(self, span: int) -> None:
        self._begun = span
        for key in self._later.pop(span):
            number = self._number_of(key)
            if number is not None and number >> self._bits == span:
                heappush(self._soon, (number, key))
            else:
                self._count -= 1

    def _sweep(self) -> None:
        """Drops the appointments that don't count any more, and appointments that were made twice."""
        number_of, bits = self._number_of, self._bits
        self._soon = [(number, key) for number, key in set(self._soon) if number_of(key) == number]
        heapify(self._soon)
        for span, keys in list(self._later.items()):
            found = {key: number for key in keys if (number := number_of(key)) is not None}
            self._later[span] = [key for key, number in found.items() if number >> bits == span]
        self._later = {span: keys for span, keys in self._later.items() if keys}
        self._spans = list(self._later)
        heapify(self._spans)
        self._count = len(self._soon) + sum(map(len, self._later.values()))
