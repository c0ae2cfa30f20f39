"""What waits in memory for less than a unit: messages until they are due, requests to cancel until their message is.

Rules
1. A log's committed position stays at the lowest record that waits here, so that a restart reads it again.
2. A message that was in no log is `afloat`: it is put back into the tier that it left before the `take` ends.
3. A request has its message's key and comes just before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from kafka_pubsub.delays.values import BEFORE_ALL, UNWRITTEN, Key, Waiting
from kafka_pubsub.errors import InvariantViolated

__all__ = ["Memory", "Rested", "key_of"]

#: Due, offset, order, source and the message. The order of a request is -1.
Rested = tuple[int, int, int, int, Waiting]


def key_of(message: Waiting) -> Key:
    """Returns when a message is released; of a request to cancel, when its message would be."""
    return message.due, message.offset if message.target < 0 else message.target


class Memory:
    """What waits in memory, of so many sources."""

    def __init__(self, sources: int) -> None:
        #: A heap.
        self.heap: list[Rested] = []
        # Of each source the positions of what waits here, lowest first.
        self._resting: list[dict[int, None]] = [{} for _ in range(sources)]
        self._afloat = 0

    def rest(self, source: int, message: Waiting) -> None:
        """A message of this source waits from now on."""
        order = source if message.target < 0 else -1
        heappush(self.heap, (*key_of(message), order, source, message))
        if message.position == UNWRITTEN:
            self._afloat += 1
        else:
            self._resting[source][message.position] = None

    def take(self) -> Waiting:
        """Returns the first, which goes."""
        *_, source, message = heappop(self.heap)
        if message.position == UNWRITTEN:
            self._afloat -= 1
        else:
            del self._resting[source][message.position]
        return message

    def lowest(self, source: int, otherwise: int) -> int:
        """Returns the lowest position of a source that waits here, if that is lower."""
        return min(otherwise, next(iter(self._resting[source]), otherwise))

    def put_back(self) -> dict[int, Sequence[Waiting]]:
        """Returns what is afloat, by the source that it left and in the order of leaving; it goes."""
        found: dict[int, list[Waiting]] = {}
        if not self._afloat:
            return {}
        for *_, source, message in self.heap:
            if message.position == UNWRITTEN:
                found.setdefault(source, []).append(message)
        self.heap[:] = [each for each in self.heap if each[4].position != UNWRITTEN]
        heapify(self.heap)
        self._afloat = 0
        return {source: sorted(some, key=_leaves) for source, some in found.items()}

    def check(self, *, afloat: bool) -> None:
        """Raises `InvariantViolated` if it contradicts itself, or something is afloat that may not be."""
        written = [each for each in self.heap if each[4].position != UNWRITTEN]
        resting = [
            sorted(each[4].position for each in written if each[3] == n) for n in range(len(self._resting))
        ]
        if resting != [list(each) for each in self._resting] or self._afloat != len(self.heap) - len(written):
            raise InvariantViolated("what waits in memory isn't what holds the positions")
        if any(each[:2] <= BEFORE_ALL for each in self.heap):
            raise InvariantViolated("a message in memory was never due")
        if self._afloat and not afloat:
            raise InvariantViolated("a message in memory is in no log")
        heap = list(self.heap)
        heapify(heap)
        if heap[:1] != self.heap[:1]:
            raise InvariantViolated("memory is out of order")


def _leaves(message: Waiting) -> Key:
    return message.at, message.offset
