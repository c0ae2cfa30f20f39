"""One tier's partition, as its router reads it: what was read and not handled, and what is known of the rest.

Theory. Records leave a tier in the order in which they were written, because all wait for the same time. To handle the
earliest of all tiers first, the router must know the head of each. It wrote the records itself, so it knows when there
is something that it hasn't read yet, and before which key that can't be.

Rules
1. The head is unknown while there is something to read and nothing was read of it. Then nothing may be handled whose
   key is above `low`.
2. A record that an earlier router wrote lies below `until`; it may be a marker, or have been aborted.
3. A record that isn't ours has the key of the one before it: it is handled at once, and holds up nothing. It isn't
   counted as one that the router wrote, or a head that wasn't read yet would be taken for none.
4. What the router has just put here is `fresh` until its caller is told to write it. Behind a log that was read to its
   end it is the head, so what leaves again at once is never written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kafka_pubsub.delays.values import BEFORE_ALL, Key, Waiting
from kafka_pubsub.errors import InvariantViolated

__all__ = ["Tier"]

#: Bytes that a buffered record takes beside its body.
_BESIDE = 600


class Tier:
    """The log of one tier, from a position on, up to `until` as an earlier router left it."""

    def __init__(self, position: int, until: int) -> None:
        #: Read and not handled.
        self.buffer: deque[Waiting] = deque()
        #: Put here since the last `flush`, in the order of leaving.
        self.fresh: deque[Waiting] = deque()
        #: About so many bytes of memory does the buffer take.
        self.size = 0
        #: Everything below it was handled in this life.
        self.next = position
        #: Everything below it was read, or can never be.
        self.read = position
        #: The head isn't below this key, if it is unknown.
        self.low: Key = BEFORE_ALL
        self._until = until
        # How many records this router wrote and hasn't read.
        self._written = 0

    @property
    def unknown(self) -> bool:
        """Whether there is a head that wasn't read yet."""
        return not self.buffer and (self._written > 0 or self.read < self._until)

    @property
    def head(self) -> Waiting | None:
        """The first message; None: there is none, or it is unknown."""
        if self.buffer:
            return self.buffer[0]
        return self.fresh[0] if self.fresh and not self.unknown else None

    def put(self, message: Waiting) -> bool:
        """Takes a message that comes here; returns whether it is the head now."""
        self.fresh.append(message)
        return len(self.fresh) == 1 and not self.buffer and not self.unknown

    def flush(self, left: Sequence[Waiting]) -> Sequence[Waiting]:
        """Returns what is to be written: `left`, which had left already and comes back, and what is fresh."""
        found = [*left, *self.fresh]
        self.fresh.clear()
        if found and not self.buffer and not self.unknown:
            self.low = found[0][:2]
        self._written += len(found)
        return found

    def receive(self, records: Sequence[Waiting]) -> None:
        """Takes what was read, in the order of the log; what was read before is left out."""
        found = [record for record in records if record.position >= self.read]
        if not found:
            return
        self.read = found[-1].position + 1
        self.low = found[-1][:2]
        # A record that isn't ours was written by no router.
        self._written -= sum(each.position >= self._until and each.home is not None for each in found)
        self.size += sum(_BESIDE + len(record.record) for record in found)
        self.buffer += found

    def reach(self, position: int) -> None:
        """Nothing below the position is left to be read."""
        self.read = max(self.read, position)

    def take(self) -> Waiting:
        """The head, which is handled now."""
        if not self.buffer:
            return self.fresh.popleft()
        record = self.buffer.popleft()
        self.size -= _BESIDE + len(record.record)
        self.next = record.position + 1
        return record

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        positions = [record.position for record in self.buffer]
        keys = [record[:2] for record in self.buffer]
        if positions != sorted(set(positions)) or keys != sorted(keys):
            raise InvariantViolated("a tier's records are out of order")
        if positions and not self.next <= positions[0] <= positions[-1] < self.read:
            raise InvariantViolated(
                f"a tier is at {self.next}, read up to {self.read}, and holds {positions}"
            )
        if self._written < 0:
            raise InvariantViolated("more records were read from a tier than written")
        if self.size != sum(_BESIDE + len(record.record) for record in self.buffer):
            raise InvariantViolated("a tier's size isn't that of its records")
