"""Records that wait, by ordering key: a lease runner for each key, many keys side by side.

Theory. A key is *ready* when it has waiting records, no lease holds it and it isn't parked. `take` hands over a run
from the front of a key's queue and blocks the key until it is released. The ready key whose first record is the
oldest goes first. So keys go forward together, no key starves, and the finished records lie close together in the
log. Records without a key wait in a line of their own and never block each other.

Rules
1. A blocked key keeps its queue, even an empty queue: records that arrive meanwhile wait behind its lease runner (I1).
2. A key's queue is in order of offset. Records that come back go to the front, so the order survives. Records without
   a key come back in any order and are sorted in: the oldest must come first, because `oldest` decides
   whether records must be noted before they start.
3. A key is in `ready` exactly once while it is ready, and not otherwise. A key that is parked meanwhile leaves its
   entry there, and `_void` notes that the entry is void: removing it from the heap would cost a look at all entries.
4. A parked key isn't taken for as long as it is in `parked`, and costs nothing here unless records of the key wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from operator import methodcaller
from typing import Protocol

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.log.records import Record

__all__ = ["KeyQueues", "Watch"]

#: So few void entries aren't worth a sweep.
FEW = 64

_offset = methodcaller("offset")


class Watch(Protocol):
    """Takes note of the records that come to wait, go, and come back."""

    def came(self, records: Sequence[Record]) -> None: ...
    def went(self, records: Sequence[Record]) -> None: ...
    def came_back(self, records: Sequence[Record]) -> None: ...


class KeyQueues:
    """The waiting records of a partition."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        #: Gets a note of each change; None: the partition's topic has no lanes.
        self.watch: Watch | None = None
        #: Waiting records by key. A key is in here while it has waiting records or is blocked.
        self.queues: dict[bytes, list[Record]] = {}
        #: Keys that may be taken, as a heap by the offset of their first record.
        self.ready: list[tuple[int, bytes]] = []
        #: Entries of `ready` that are void. The first entry never is.
        self._void: set[tuple[int, bytes]] = set()
        #: Keys that may not be taken, with the number of reasons: a lease runner, a backoff, an old callback.
        self.blocked: dict[bytes, int] = {}
        #: Keys that wait in the retry partition. `park` is called before a key enters, `unpark` when the key has left.
        self.parked: Collection[bytes] = ()
        #: Offsets of records with which no lease goes on: they may wait for other lanes (`lanes.followers`).
        self.stops: Collection[int] = ()
        #: Waiting records without an order: they have no key, or the subscription has no ordering.
        self.loose: deque[Record] = deque()

    def __len__(self) -> int:
        return len(self.loose) + sum(map(len, self.queues.values()))

    def add(self, records: Sequence[Record]) -> None:
        """Queues newly received records behind the records that wait already."""
        if self.watch is not None and records:
            self.watch.came(records)
        if not self._ordered:
            self.loose.extend(records)
            return
        queues, ready, parked = self.queues, self.ready, self.parked
        for record in records:
            key = record.key()
            if key is None:
                self.loose.append(record)
                continue
            queue = queues.get(key)
            if queue is None:
                queues[key] = [record]
                if key not in parked:
                    heappush(ready, (record.offset(), key))
            else:
                queue.append(record)

    def take(self, limit: int, below: int | None = None) -> list[Record]:
        """Takes up to `limit` records of the ready key with the oldest record; `unblock` ends the key's block.

        If the oldest record without a key is older still, takes that record alone. Returns an empty list if nothing is
        ready, or if the first record isn't below the offset `below`.
        """
        if below is not None:
            oldest = self.oldest()
            if oldest is None or oldest >= below:
                return []
        run = self._take(limit, below)
        if self.watch is not None:
            self.watch.went(run)
        return run

    def take_loose(self, limit: int, below: int) -> list[Record]:
        """Takes up to `limit` records without an order below an offset."""
        loose = self.loose
        count = min(limit, len(loose))
        if count and loose[count - 1].offset() < below:
            run = [loose.popleft() for _ in range(count)]
        else:
            run = []
            while loose and loose[0].offset() < below:
                run.append(loose.popleft())
        if self.watch is not None:
            self.watch.went(run)
        return run

    def _take(self, limit: int, below: int | None) -> list[Record]:
        if self.loose and not (self.ready and self.ready[0][0] < self.loose[0].offset()):
            return [self.loose.popleft()]
        if not self.ready:
            return []
        key = heappop(self.ready)[1]
        if self._void:
            self._prune()
        queue = self.queues[key]
        self.blocked[key] = 1
        if below is not None:
            limit = min(limit, bisect_left(queue, below, key=_offset))
        if self.stops:
            limit = next(
                (at for at in range(1, len(queue[:limit])) if queue[at].offset() in self.stops), limit
            )
        if len(queue) <= limit:
            self.queues[key] = []
            return queue
        run = queue[:limit]
        del queue[:limit]
        return run

    def _prune(self) -> None:
        ready, void = self.ready, self._void
        if 2 * len(void) > FEW + len(ready):
            self.ready = [entry for entry in ready if entry not in void]
            heapify(self.ready)
            void.clear()
        while void and ready[0] in void:
            void.remove(heappop(ready))

    @property
    def ready_count(self) -> int:
        """The number of keys that may be taken."""
        return len(self.ready) - len(self._void)

    def oldest(self) -> int | None:
        """Returns the offset of the record that `take` would begin with."""
        heads = [self.ready[0][0]] if self.ready else []
        if self.loose:
            heads.append(self.loose[0].offset())
        return min(heads, default=None)

    def put_back(self, key: bytes | None, records: Sequence[Record]) -> None:
        """Puts records that weren't finished back in front; a key stays blocked until `unblock`."""
        if self.watch is not None:
            self.watch.came_back(records)
        if key is not None and self._ordered:
            self.queues[key][:0] = records
            return
        for record in reversed(records):
            if self.loose and self.loose[0].offset() < record.offset():
                insort(self.loose, record, key=_offset)
            else:
                self.loose.appendleft(record)

    def block(self, key: bytes) -> None:
        """Adds a reason not to take the key, which isn't ready."""
        self.queues.setdefault(key, [])
        self.blocked[key] = self.blocked.get(key, 0) + 1

    def park(self, key: bytes) -> None:
        """Takes note that the key, which may be ready, is going to be parked."""
        queue = self.queues.get(key)
        if queue and key not in self.blocked:
            self._void.add((queue[0].offset(), key))
            self._prune()

    def unpark(self, key: bytes) -> None:
        """Takes note that the key isn't parked any more."""
        queue = self.queues.get(key)
        if queue and key not in self.blocked:
            self._push((queue[0].offset(), key))

    def take_from(self, key: bytes, limit: int, below: float) -> list[Record]:
        """Takes up to `limit` records below offset `below` from the front of a blocked or parked key."""
        queue = self.queues.get(key, [])
        count = 0
        while count < min(limit, len(queue)) and queue[count].offset() < below:
            count += 1
        run = queue[:count]
        del queue[:count]
        if self.watch is not None and run:
            self.watch.went(run)
        if not queue and key not in self.blocked:
            self.queues.pop(key, None)
        return run

    def unblock(self, key: bytes) -> None:
        """Removes a reason not to take the key; without any it is ready unless parked, or forgotten if empty."""
        self.unblock_all([key])

    def unblock_all(self, keys: Sequence[bytes | None]) -> None:
        """Removes a reason for each of these keys; None (no key) was never blocked."""
        blocked, queues, parked = self.blocked, self.queues, self.parked
        for key in keys:
            if key is None:
                continue
            reasons = blocked.pop(key) - 1
            queue = queues[key]
            if reasons:
                blocked[key] = reasons
            elif not queue:
                del queues[key]
            elif key not in parked:
                self._push((queue[0].offset(), key))

    def _push(self, entry: tuple[int, bytes]) -> None:
        if entry in self._void:
            self._void.remove(entry)  # the entry is still in the heap
        else:
            heappush(self.ready, entry)

    def waiting(self) -> Iterator[Record]:
        """Yields every waiting record."""
        yield from self.loose
        for queue in self.queues.values():
            yield from queue

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if list(self.loose) != sorted(self.loose, key=_offset):
            raise InvariantViolated("records without a key are out of order")
        wanted = {
            (queue[0].offset(), key)
            for key, queue in self.queues.items()
            if queue and key not in self.blocked and key not in self.parked
        }
        if sorted([*wanted, *self._void]) != sorted(self.ready):
            raise InvariantViolated(f"ready keys are {self.ready} without {self._void}, should be {wanted}")
        if self.ready and self.ready[0] in self._void:
            raise InvariantViolated(f"the first ready key is void: {self.ready[0]}")
        for key, queue in self.queues.items():
            offsets = [record.offset() for record in queue]
            if offsets != sorted(offsets):
                raise InvariantViolated(f"queue of key {key!r} is out of order")
            if not queue and key not in self.blocked:
                raise InvariantViolated(f"key {key!r} has neither records nor a lease")
        if not self.blocked.keys() <= self.queues.keys():
            raise InvariantViolated("a blocked key has lost its queue")
