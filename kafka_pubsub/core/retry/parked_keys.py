"""Which messages wait in the retry partition, by key and in order of origin: an index, without their bodies.

Theory. A key with messages in the retry topic is *parked*. Of it only the message of the smallest origin may go next,
and a message that is on its way into the retry partition (*moving*) counts as well, though it lies nowhere yet. The
index holds no bodies (`key_line` tells how small it is).

Where a parked key stands (`settle` says so, and wakes it by `due` or `passed`)
  GONE    nothing of it waits or moves: the key is like any other again
  MOVING  its next message is on its way into the retry partition
  MAIN    its next message waits in the main partition: it was published before what is parked
  BEHIND  main hasn't been read past the origin of its next message: an earlier one may still be there
  DUE     its next message waits for its time, perhaps for ever
  NEXT    its next message may go

Rules
1. A key that a lease runner has isn't settled; it is settled anew when the lease runner is through.
2. Settling a key once more than needed changes nothing. So `due` and `passed` may name a key that has moved on; what
   may be handed out is only what `ready` says, with the origin that it was said of.
3. Messages without a key wait by themselves (`unkeyed`), each until it is due, and never park each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import IntEnum

from kafka_pubsub.core.retry.appointments import Appointments
from kafka_pubsub.core.retry.key_line import FEW, NEVER_TICKS, passed
from kafka_pubsub.core.retry.packed_lines import PackedLines
from kafka_pubsub.core.retry.unkeyed import Unkeyed
from kafka_pubsub.errors import InvariantViolated

__all__ = ["ParkedKeys", "Standing"]


class Standing(IntEnum):
    """Where a parked key stands; see the head of this file."""

    GONE = 0
    MOVING = 1
    MAIN = 2
    BEHIND = 3
    DUE = 4
    NEXT = 5


#: Keys whose time comes within so many microseconds are put in order together, by powers of two: four seconds. And so
#: with offsets of main: 4,096.
_TIMES, _ORIGINS = 22, 12


class ParkedKeys:
    """The keys of one partition that are parked."""

    def __init__(self) -> None:
        #: Empty: no key is parked.
        self.lines = PackedLines()
        #: By key: origins on their way into the retry partition, or to the dead letters, and how often each: it may
        #: move on before its first transaction was answered.
        self.moving: dict[bytes, dict[int, int]] = {}
        #: Of the parked keys, those behind which messages of main wait: since when, or since when the last was acked. A
        #: key may stay here for a while when its last one has gone.
        self.backlogged: dict[bytes, float] = {}
        self.loose = Unkeyed()
        self._due = Appointments(self.lines, self._due_of, _TIMES)
        self._behind = Appointments(self.lines, self._origin_of, _ORIGINS)
        # Keys that may go, with the origin that is next; and these as a heap, among some that count no longer.
        self._ready: dict[bytes, int] = {}
        self._next: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self.loose) + self.lines.total()

    def departs(self, key: bytes, origin: int) -> None:
        """A message of the key is on its way into the retry partition, or to the dead letters; settle the key anew."""
        self.lines.setdefault(key, b"")
        self._ready.pop(key, None)
        moving = self.moving.setdefault(key, {})
        moving[origin] = moving.get(origin, 0) + 1

    def arrives(self, key: bytes, origin: int) -> None:
        """It has come, or stays where it was, or is finished."""
        moving = self.moving.get(key)
        if moving is not None:
            left = moving.pop(origin, 1) - 1
            if left:
                moving[origin] = left
            if not moving:
                del self.moving[key]

    def acked(self, keys: Iterable[bytes | None], now: float) -> None:
        """Leases of these keys, parked or not, were acked whole."""
        backlogged = self.backlogged
        if backlogged:
            for key in keys:
                if key in backlogged:
                    backlogged[key] = now

    def unsettle(self, key: bytes) -> None:
        """A lease runner has the key: it stands nowhere until it is settled again."""
        self._ready.pop(key, None)

    def settle(self, key: bytes, main: int | None, position: int, now: float) -> Standing:
        """Where a key stands that no lease runner has. `main` is the first origin that waits in the main partition."""
        self._ready.pop(key, None)
        front, moving = self.lines.front(key), self.moving.get(key)
        first = None if moving is None else min(moving)
        if front is None and first is None:
            del self.lines[key]
            self.backlogged.pop(key, None)
            return Standing.GONE
        if main is not None and (front is None or main < front[0]) and (first is None or main < first):
            self._may_go(key, main)
            return Standing.MAIN
        if front is None or (first is not None and first <= front[0]):
            return Standing.MOVING
        origin, _, due = front
        if origin >= position:
            self._behind.add(origin, key)
            return Standing.BEHIND
        if due > passed(now):
            if due != NEVER_TICKS:
                self._due.add(due, key)
            return Standing.DUE
        return Standing.NEXT

    def ready(self, key: bytes) -> None:
        """Its next message is at hand and may be taken."""
        if (front := self.lines.front(key)) is not None:
            self._may_go(key, front[0])

    def _may_go(self, key: bytes, origin: int) -> None:
        self._ready[key] = origin
        heapq.heappush(self._next, (origin, key))
        if len(self._next) > FEW + 2 * len(self._ready):
            self._next = [(origin, key) for key, origin in self._ready.items()]
            heapq.heapify(self._next)

    def first(self) -> tuple[int, bytes] | None:
        """The ready key with the smallest origin."""
        ready, heap = self._ready, self._next
        while heap and ready.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def first_fresh(self) -> tuple[int, bytes] | None:
        """Of the ready keys whose next message hasn't failed yet, the one with the smallest origin."""
        found = [(origin, key) for key, origin in self._ready.items() if self._is_fresh(origin, key)]
        return min(found, default=None)

    def _is_fresh(self, origin: int, key: bytes) -> bool:
        entry = self.lines.peek(key)
        return entry is None or origin < entry.origin or entry.never_failed

    def next_due(self, *, loose: bool = True) -> float | None:
        """When something becomes due; perhaps too early, never too late. `loose`: without a key, too."""
        keyed = self._due.next()
        times = [] if keyed is None else [keyed / 1e6]
        if loose and (soonest := self.loose.next_due()) is not None:
            times.append(soonest)
        return min(times, default=None)

    def due(self, now: float) -> list[bytes]:
        """Keys whose next message is due, to be settled."""
        return self._due.come(passed(now))

    @property
    def behind(self) -> bool:
        """Whether main may not have been read past the origin of all that waits."""
        return bool(self._behind)

    def passed(self, position: int) -> list[bytes]:
        """Keys whose next message main has been read past, to be settled."""
        return self._behind.come(position - 1)

    def _due_of(self, key: bytes) -> int | None:
        front = self.lines.front(key)
        return None if front is None else front[2]

    def _origin_of(self, key: bytes) -> int | None:
        front = self.lines.front(key)
        return None if front is None else front[0]

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        for key in self.lines:
            places = [entry[:2] for entry in self.lines.entries(key)]
            if places != sorted(set(places)):
                raise InvariantViolated(f"messages of the parked key {key!r} are out of order or twice there")
        if not self.moving.keys() | self._ready.keys() <= self.lines.keys():
            raise InvariantViolated("a key that isn't parked has messages that move, or is ready")
        for kind in (self._due, self._behind):
            if len(kind) > FEW + 2 * len(self.lines) + 1:
                raise InvariantViolated(f"{len(kind)} appointments of {len(self.lines)} parked keys")
        if len(self.loose) != sum(1 for _ in self.loose):
            raise InvariantViolated("messages without a key are counted wrongly")
