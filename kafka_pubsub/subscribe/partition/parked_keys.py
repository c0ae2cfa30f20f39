"""Which messages wait in the retry partition, by key and in order of origin: an index, without their bodies.

Theory. A key with messages in the retry topic is *parked*. Only its message of the smallest origin may go next,
and a message that is on its way into the retry partition (*moving*) counts as well, though no record of the message was
read yet. The index holds no bodies (`packed_lines` explains how small it is).

Where a parked key stands (`settle` returns it; `due` and `passed` name the keys to settle anew)
  GONE    no message of the key waits or moves: it is like any other again
  MOVING  its next message is on its way into the retry partition
  HOME    its next message waits in the home partition: it was published before what is parked
  BEHIND  home hasn't been read past the origin of its next message: an earlier one may still be there
  DUE     its next message waits for its due time, perhaps for ever
  NEXT    its next message may go

Rules
1. A key that a lease runner has isn't settled; the key is settled anew when the lease runner has ended.
2. Settling a key once more than needed changes nothing. So `due` and `passed` may name a key that has moved on; only
   a key that `ready` was called for may be handed out, with the origin of that call.
3. Messages without a key wait by themselves (`unkeyed`), each until its due time, and never park each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import IntEnum

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.subscribe.partition.appointments import Appointments
from kafka_pubsub.subscribe.partition.key_line import FEW, NEVER_TICKS, passed
from kafka_pubsub.subscribe.partition.packed_lines import PackedLines
from kafka_pubsub.subscribe.partition.unkeyed import Unkeyed

__all__ = ["ParkedKeys", "Standing"]


class Standing(IntEnum):
    """Where a parked key stands; see the head of this file."""

    GONE = 0
    MOVING = 1
    HOME = 2
    BEHIND = 3
    DUE = 4
    NEXT = 5


#: The spans of appointments, as powers of two: 2**22 microseconds (four seconds), and 4,096 offsets of home.
_TIMES, _ORIGINS = 22, 12


class ParkedKeys:
    """The keys of a partition that are parked."""

    def __init__(self) -> None:
        #: The parked keys and their entries.
        self.lines = PackedLines()
        #: By key: origins on their way into the retry partition, or to the dead letters, and how often each: a message
        #: may move on before its first transaction was answered.
        self.moving: dict[bytes, dict[int, int]] = {}
        #: The parked keys behind which messages of home wait: since when, or since when the last was acked. A key may
        #: stay here for a while when its last message has gone.
        self.backlogged: dict[bytes, float] = {}
        self.loose = Unkeyed()
        self._due = Appointments(self.lines, self._due_of, _TIMES)
        self._behind = Appointments(self.lines, self._origin_of, _ORIGINS)
        # Keys that may go, with the origin that is next; and these as a heap, with some void entries.
        self._ready: dict[bytes, int] = {}
        self._next: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self.loose) + self.lines.total()

    def departs(self, key: bytes, origin: int) -> None:
        """Takes note that a message of the key moves or is dead-lettered; the caller settles the key anew."""
        self.lines.setdefault(key, b"")
        self._ready.pop(key, None)
        moving = self.moving.setdefault(key, {})
        moving[origin] = moving.get(origin, 0) + 1

    def arrives(self, key: bytes, origin: int) -> None:
        """Takes note that the message was read back, or stays in its place, or is finished."""
        moving = self.moving.get(key)
        if moving is not None:
            left = moving.pop(origin, 1) - 1
            if left:
                moving[origin] = left
            if not moving:
                del self.moving[key]

    def acked(self, keys: Iterable[bytes | None], now: float) -> None:
        """Takes note that leases of these keys, parked or not, were acked whole."""
        backlogged = self.backlogged
        if backlogged:
            for key in keys:
                if key in backlogged:
                    backlogged[key] = now

    def unsettle(self, key: bytes) -> None:
        """Takes note that a lease runner has the key, which stands nowhere until it is settled again."""
        self._ready.pop(key, None)

    def settle(
        self, key: bytes, home: int | None, position: int, now: float, *, held: bool = False
    ) -> Standing:
        """Returns where a key stands that no lease runner has; `home`: its first origin that waits in home.

        `held`: that message may not go, so the key stays parked for its sake.
        """
        self._ready.pop(key, None)
        front, moving = self.lines.front(key), self.moving.get(key)
        first = None if moving is None else min(moving)
        if front is None and first is None and not held:
            del self.lines[key]
            self.backlogged.pop(key, None)
            return Standing.GONE
        if home is not None and (front is None or home < front[0]) and (first is None or home < first):
            if not held:
                self.may_go(key, home)
            return Standing.HOME
        if front is None or (first is not None and first <= front[0]):
            return Standing.MOVING
        origin, _, due, _ = front
        if origin >= position:
            self._behind.add(origin, key)
            return Standing.BEHIND
        if due > passed(now):
            if due != NEVER_TICKS:
                self._due.add(due, key)
            return Standing.DUE
        return Standing.NEXT

    def may_go(self, key: bytes, origin: int) -> None:
        """Takes note that the key's next message, of that origin, is in memory and may be taken."""
        self._ready[key] = origin
        heapq.heappush(self._next, (origin, key))
        if len(self._next) > FEW + 2 * len(self._ready):
            self._next = [(origin, key) for key, origin in self._ready.items()]
            heapq.heapify(self._next)

    def origin_of(self, key: bytes) -> int | None:
        """Returns the origin of the key's next message if that may be taken."""
        return self._ready.get(key)

    def first(self) -> tuple[int, bytes] | None:
        """Returns the ready key with the smallest origin."""
        ready, heap = self._ready, self._next
        while heap and ready.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def first_fresh(self) -> tuple[int, bytes] | None:
        """Returns the ready key with the smallest origin among those whose next message hasn't failed yet."""
        found = [(origin, key) for key, origin in self._ready.items() if self._is_fresh(origin, key)]
        return min(found, default=None)

    def _is_fresh(self, origin: int, key: bytes) -> bool:
        entry = self.lines.peek(key)
        return entry is None or origin < entry.origin or entry.never_failed

    def next_due(self, *, loose: bool = True) -> float | None:
        """Returns when a message becomes due; perhaps too early, never too late. `loose`: without a key, too."""
        keyed = self._due.next()
        times = [] if keyed is None else [keyed / 1e6]
        if loose and (soonest := self.loose.next_due()) is not None:
            times.append(soonest)
        return min(times, default=None)

    def due(self, now: float) -> list[bytes]:
        """Returns keys whose next message is due, to be settled."""
        return self._due.come(passed(now))

    @property
    def behind(self) -> bool:
        """Whether home may not have been read past the origin of all that waits."""
        return bool(self._behind)

    def passed(self, position: int) -> list[bytes]:
        """Returns keys past whose next message home has been read, to be settled."""
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
