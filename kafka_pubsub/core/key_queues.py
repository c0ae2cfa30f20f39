"""Records that wait, by ordering key: one holder per key, keys beside each other.

Theory. A key is *ready* when it has waiting records and nobody holds it. Taking a key hands over a run from the
front of its queue and blocks the key until it is released. Records without a key wait in a line of their own and
never block each other.

Rules
1. A blocked key keeps its queue, even an empty one: what arrives meanwhile waits behind its holder (I1).
2. A key's queue is in order of offset. What comes back goes to the front, so the order survives.
3. A key is in `ready` exactly once while it is ready, and not otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from kafka_pubsub.core.events import Record
from kafka_pubsub.errors import InvariantViolated

__all__ = ["KeyQueues"]


class KeyQueues:
    """The waiting records of one partition."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        #: Waiting records by key. A key is in here while it has waiting records or is blocked.
        self.queues: dict[bytes, list[Record]] = {}
        #: Keys that may be taken, longest ready first.
        self.ready: deque[bytes] = deque()
        #: Keys that may not be taken, and how many reasons there are: a holder, a backoff, an old handler.
        self.blocked: dict[bytes, int] = {}
        #: Waiting records without an order: no key, or a subscription without ordering.
        self.loose: deque[Record] = deque()

    def __len__(self) -> int:
        return len(self.loose) + sum(map(len, self.queues.values()))

    def add(self, records: Sequence[Record]) -> None:
        """Newly received records queue up behind what waits already."""
        if not self._ordered:
            self.loose.extend(records)
            return
        queues, ready = self.queues, self.ready
        for record in records:
            key = record[1]
            if key is None:
                self.loose.append(record)
                continue
            queue = queues.get(key)
            if queue is None:
                queues[key] = [record]
                ready.append(key)
            else:
                if not queue and key not in self.blocked:
                    ready.append(key)
                queue.append(record)

    def take(self, limit: int) -> list[Record]:
        """The next ready key's first `limit` records; the key is blocked until `unblock`. Empty: none ready."""
        if not self.ready:
            return []
        return self._take(self.ready.popleft(), limit)

    def take_key(self, key: bytes, limit: int) -> list[Record]:
        """Like `take`, for one key, which must be ready."""
        self.ready.remove(key)
        return self._take(key, limit)

    def _take(self, key: bytes, limit: int) -> list[Record]:
        queue = self.queues[key]
        self.blocked[key] = 1
        if len(queue) <= limit:
            self.queues[key] = []
            return queue
        run = queue[:limit]
        del queue[:limit]
        return run

    def put_back(self, key: bytes | None, records: Sequence[Record]) -> None:
        """Records that weren't finished go to the front again; a key stays blocked until `unblock`."""
        if key is None or not self._ordered:
            self.loose.extendleft(reversed(records))
        else:
            self.queues[key][:0] = records

    def block(self, key: bytes) -> None:
        """One more reason not to take the key."""
        if key not in self.blocked:
            if self.queues.setdefault(key, []):
                self.ready.remove(key)
            self.blocked[key] = 0
        self.blocked[key] += 1

    def unblock(self, key: bytes) -> None:
        """One reason less; with the last one the key is ready again, or forgotten if nothing waits."""
        reasons = self.blocked[key] - 1
        if reasons:
            self.blocked[key] = reasons
            return
        del self.blocked[key]
        if self.queues[key]:
            self.ready.append(key)
        else:
            del self.queues[key]

    def waiting(self) -> Iterator[Record]:
        """Every waiting record."""
        yield from self.loose
        for queue in self.queues.values():
            yield from queue

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if len(set(self.ready)) != len(self.ready):
            raise InvariantViolated("a key is ready twice")
        wanted = {key for key, queue in self.queues.items() if queue and key not in self.blocked}
        if wanted != set(self.ready):
            raise InvariantViolated(f"ready keys are {set(self.ready)}, should be {wanted}")
        for key, queue in self.queues.items():
            offsets = [record[0] for record in queue]
            if offsets != sorted(offsets):
                raise InvariantViolated(f"queue of key {key!r} is out of order")
            if not queue and key not in self.blocked:
                raise InvariantViolated(f"key {key!r} has neither records nor a holder")
        if not self.blocked.keys() <= self.queues.keys():
            raise InvariantViolated("a blocked key has lost its queue")
