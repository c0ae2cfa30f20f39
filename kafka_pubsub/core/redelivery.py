"""When a message that wasn't acked comes again.

Rules
1. Backoff is exponential with full jitter: between `minimum` and `maximum` the wait before attempt n is drawn
   from the minimum up to `minimum * 2**(n - 2)`, so that many failures at once don't come back at once. A minimum
   of nothing grows as if it were `SOON`.
2. A message that waits keeps its place: its key is blocked, its successors wait behind it. (`Waiting` is for
   subscriptions without a retry topic; with one, `parking` does this.)
3. Without a policy a message comes again as soon as possible: after `SOON`, so that a handler that always fails
   doesn't spin a processor.
"""

from __future__ import annotations

import heapq
from enum import Enum
from typing import NamedTuple

from kafka_pubsub.core.events import Record

__all__ = ["LONGEST_DELAY", "SOON", "Backoff", "Exhausted", "Policy", "Waiting"]

#: Seconds; short beside any handler worth retrying, long beside a spinning loop.
SOON = 0.01
#: Seconds; the longest delay that a nack may ask for.
LONGEST_DELAY = 7 * 86_400


class Backoff(NamedTuple):
    """The bounds of the wait before a redelivery, in seconds."""

    minimum: float = SOON
    maximum: float = SOON

    def wait(self, attempt: int, jitter: float) -> float:
        """The wait before delivery `attempt` (2 is the first redelivery); `jitter` is drawn from [0, 1)."""
        ceiling = min(self.maximum, max(self.minimum, SOON) * 2.0 ** min(attempt - 2, 60))
        return self.minimum + jitter * (ceiling - self.minimum)


class Exhausted(Enum):
    """What becomes of a message whose attempts are used up."""

    DEAD_LETTER = "dead_letter"
    PARK = "park"


class Policy(NamedTuple):
    """When attempts are used up (0: never), and what then. Crashes that a message is blamed for count as attempts."""

    max_attempts: int = 0
    on_exhausted: Exhausted = Exhausted.DEAD_LETTER

    def used_up(self, deliveries: int) -> bool:
        """Whether no further delivery is allowed after so many."""
        return 0 < self.max_attempts <= deliveries


class Waiting:
    """Records in backoff, in place: each blocks its key, or nothing if it has none."""

    def __init__(self) -> None:
        #: Which delivery the next one will be, by offset; only records delivered before. Empty: no retries.
        self.attempts: dict[int, int] = {}
        self._due: list[tuple[float, int, Record, bytes | None]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, record: Record, key: bytes | None, attempt: int, due: float) -> None:
        """`record` comes again at `due`, as delivery `attempt`. `key` is what it blocks."""
        self.attempts[record.offset()] = attempt
        heapq.heappush(self._due, (due, record.offset(), record, key))

    def next_due(self) -> float | None:
        """When the next one is due."""
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> list[tuple[Record, bytes | None]]:
        """Those whose time has come."""
        come: list[tuple[Record, bytes | None]] = []
        while self._due and self._due[0][0] <= now:
            _, _, record, key = heapq.heappop(self._due)
            come.append((record, key))
        return come

    def records(self) -> list[tuple[Record, bytes | None]]:
        """All that wait here, in no order."""
        return [(record, key) for _, _, record, key in self._due]
