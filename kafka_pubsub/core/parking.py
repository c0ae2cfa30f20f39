"""Which messages wait in the retry partition, by key and in order of origin: an index, without their bodies.

Theory. A key with messages in the retry topic is *parked*. Of it only the message of the smallest origin may go next,
and a message that is on its way into the retry partition (*moving*) counts as well, though it lies nowhere yet. The
index holds no bodies (`parked` tells how small it is).

Where a parked key stands (`settle` says so, and wakes it by `due` or `passed`)
  GONE    nothing of it waits or moves: the key is like any other again
  MOVING  its next message is on its way into the retry partition
  MAIN    its next message waits in the main partition: it was published before what is parked
  BEHIND  main hasn't been read past the origin of its next message: an earlier one may still be there
  DUE     its next message waits for its time, perhaps for ever
  NEXT    its next message may go

Rules
1. An entry of one of the heaps counts only while its stamp is the key's: whoever moves a key on makes the old ones
   void, and sweeps them when they outnumber the keys.
2. Messages without a key wait by themselves (`loose`), each until it is due, and never park each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import IntEnum

from kafka_pubsub.core.loose import Loose
from kafka_pubsub.core.parked import FEW, NEVER_TICKS, Line, passed
from kafka_pubsub.errors import InvariantViolated

__all__ = ["Parking", "Standing"]


class Standing(IntEnum):
    """Where a parked key stands; see the head of this file."""

    GONE = 0
    MOVING = 1
    MAIN = 2
    BEHIND = 3
    DUE = 4
    NEXT = 5


_Heap = list[tuple[int, bytes, int]]


class Parking:
    """The keys of one partition that are parked."""

    def __init__(self) -> None:
        #: Empty: no key is parked.
        self.lines: dict[bytes, Line] = {}
        #: Of these keys, those behind which messages of main wait: since when, or since when the last was acked. A key
        #: may stay here for a while when its last one has gone.
        self.backlogged: dict[bytes, float] = {}
        self.loose = Loose()
        # Never given twice, so that a key that is parked again doesn't find its old appointments valid.
        self._stamps = 0
        self._due: _Heap = []
        self._behind: _Heap = []
        self._next: _Heap = []

    def __len__(self) -> int:
        return len(self.loose) + sum(map(len, self.lines.values()))

    def line(self, key: bytes) -> Line:
        """The key's line; it is parked from now on, until `settle` says GONE."""
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line()
        return line

    def departs(self, key: bytes, origin: int) -> None:
        """A message of the key is on its way into the retry partition, or to the dead letters; settle the key anew."""
        line = self.line(key)
        self._stamp(line)
        if line.moving is None:
            line.moving = {}
        line.moving[origin] = line.moving.get(origin, 0) + 1

    def arrives(self, key: bytes, origin: int) -> None:
        """It has come, or stays where it was, or is finished."""
        line = self.lines.get(key)
        if line is not None and line.moving is not None:
            left = line.moving.pop(origin, 1) - 1
            if left:
                line.moving[origin] = left
            if not line.moving:
                line.moving = None

    def acked(self, keys: Iterable[bytes | None], now: float) -> None:
        """Leases of these keys, parked or not, were acked whole."""
        backlogged = self.backlogged
        if backlogged:
            for key in keys:
                if key in backlogged:
                    backlogged[key] = now

    def unsettle(self, key: bytes) -> None:
        """Somebody holds the key: it stands nowhere until it is settled again."""
        self._stamp(self.lines[key])

    def _stamp(self, line: Line) -> None:
        self._stamps += 1
        line.stamp = self._stamps

    def settle(self, key: bytes, main: int | None, position: int, now: float) -> Standing:
        """Where a key stands that nobody holds. `main` is the first origin that waits in the main partition."""
        line = self.lines[key]
        self._stamp(line)
        front, moving = line.front(), line.moving
        first = min(moving) if moving else None
        if front is None and first is None:
            del self.lines[key]
            self.backlogged.pop(key, None)
            return Standing.GONE
        if main is not None and (front is None or main < front[0]) and (first is None or main < first):
            self._push(self._next, (main, key, line.stamp))
            return Standing.MAIN
        if front is None or (first is not None and first <= front[0]):
            return Standing.MOVING
        origin, _, due = front
        if origin >= position:
            self._push(self._behind, (origin, key, line.stamp))
            return Standing.BEHIND
        if due > passed(now):
            if due != NEVER_TICKS:
                self._push(self._due, (due, key, line.stamp))
            return Standing.DUE
        return Standing.NEXT

    def ready(self, key: bytes) -> None:
        """Its next message is at hand and may be taken."""
        line = self.lines[key]
        if (front := line.front()) is not None:
            self._push(self._next, (front[0], key, line.stamp))

    def first(self) -> tuple[int, bytes] | None:
        """The ready key with the smallest origin."""
        self._prune(self._next)
        return self._next[0][:2] if self._next else None

    def first_fresh(self) -> tuple[int, bytes] | None:
        """Of the ready keys whose next message hasn't failed yet, the one with the smallest origin."""
        found = [(origin, key) for origin, key, stamp in self._next if self._is_fresh(origin, key, stamp)]
        return min(found, default=None)

    def _is_fresh(self, origin: int, key: bytes, stamp: int) -> bool:
        line = self.lines.get(key)
        if line is None or line.stamp != stamp:
            return False
        entry = line.peek()
        return entry is None or origin < entry.origin or entry.never_failed

    def next_due(self, *, loose: bool = True) -> float | None:
        """When something becomes due; perhaps too early, never too late. `loose`: without a key, too."""
        times = [self._due[0][0] / 1e6] if self._due else []
        if loose and (soonest := self.loose.next_due()) is not None:
            times.append(soonest)
        return min(times, default=None)

    def due(self, now: float) -> list[bytes]:
        """Keys whose next message is due, to be settled."""
        return self._up_to(self._due, passed(now))

    @property
    def behind(self) -> bool:
        """Whether main may not have been read past the origin of all that waits."""
        return bool(self._behind)

    def passed(self, position: int) -> list[bytes]:
        """Keys whose next message main has been read past, to be settled."""
        return self._up_to(self._behind, position - 1) if self._behind else []

    def _up_to(self, heap: _Heap, limit: int) -> list[bytes]:
        keys = []
        while heap and heap[0][0] <= limit:
            _, key, stamp = heapq.heappop(heap)
            if key in self.lines and self.lines[key].stamp == stamp:
                keys.append(key)
        return keys

    def _push(self, heap: _Heap, item: tuple[int, bytes, int]) -> None:
        heapq.heappush(heap, item)
        if len(heap) > FEW + 2 * len(self.lines):
            heap[:] = [
                each for each in heap if each[1] in self.lines and self.lines[each[1]].stamp == each[2]
            ]
            heapq.heapify(heap)

    def _prune(self, heap: _Heap) -> None:
        while heap and not (heap[0][1] in self.lines and self.lines[heap[0][1]].stamp == heap[0][2]):
            heapq.heappop(heap)

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        for key, line in self.lines.items():
            places = [entry[:2] for entry in line]
            if places != sorted(set(places)):
                raise InvariantViolated(f"messages of the parked key {key!r} are out of order or twice there")
        for heap in (self._due, self._behind, self._next):
            if len(heap) > FEW + 2 * len(self.lines) + 1:
                raise InvariantViolated(f"{len(heap)} appointments of {len(self.lines)} parked keys")
        if len(self.loose) != sum(1 for _ in self.loose):
            raise InvariantViolated("messages without a key are counted wrongly")
