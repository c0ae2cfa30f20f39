"""The messages of one inbox that aren't released, by the lowest timestamp that each can still get.

Theory. A timestamp is the maximum of all proposals, so the highest proposal known so far bounds it from below. Such a
bound blocks the messages behind it. It rises with each proposal, which lets go what it blocked for no reason.

A rise leaves the old entry in the heap, to be dropped when it comes to the top. So each operation takes O(log n).
"""

from __future__ import annotations

from heapq import heappop, heappush

from kafka_pubsub.multicast.values import Timestamp

__all__ = ["ReleaseQueue"]


class ReleaseQueue:
    """Messages by their bounds."""

    def __init__(self) -> None:
        self._bounds: dict[str, Timestamp] = {}
        self._heap: list[tuple[Timestamp, str]] = []

    def raise_to(self, message: str, bound: Timestamp) -> None:
        """Adds a message, or raises its bound."""
        before = self._bounds.get(message)
        if before is None or before < bound:
            self._bounds[message] = bound
            heappush(self._heap, (bound, message))

    def first(self) -> str | None:
        """Returns the message with the lowest bound, or None."""
        while self._heap:
            bound, message = self._heap[0]
            if self._bounds.get(message) == bound:
                return message
            heappop(self._heap)
        return None

    def remove(self, message: str) -> None:
        """Removes a message."""
        self._bounds.pop(message, None)

    def __len__(self) -> int:
        return len(self._bounds)
