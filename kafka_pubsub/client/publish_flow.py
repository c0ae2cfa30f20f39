"""How much waits to be stored, and what `publish` does when it is too much.

Rules
1. `admit` runs under the topic's lock; `settled` runs on the one thread that serves this topic's delivery reports.
   Each counter has one writer, so none needs a lock of its own.
2. Who waits says so first (`_wake_below`) and looks again afterwards; who settles counts first and looks for
   waiters afterwards. One of them sees the other: no wake-up is lost.
3. A message that is larger than the limit itself is admitted alone: it would wait for ever.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from kafka_pubsub.config import PublishFlow
from kafka_pubsub.errors import ResourceExhausted

__all__ = ["Outstanding"]

# A waiter is woken when a quarter of the limit is free, not at every report: fewer switches between threads.
_LOW_WATER: Final = 0.75


class Outstanding:
    """Counts a topic's messages between `publish` and their delivery report."""

    __slots__ = (
        "_flow",
        "_limit_bytes",
        "_limit_messages",
        "_room",
        "_wake_bytes",
        "_wake_messages",
        "_waiting",
        "done_bytes",
        "done_messages",
        "sent_bytes",
        "sent_messages",
    )

    def __init__(self, lock: threading.Lock, flow: PublishFlow) -> None:
        self.sent_messages = self.sent_bytes = 0
        self.done_messages = self.done_bytes = 0
        self._room = threading.Condition(lock)
        self._waiting = 0
        self._wake_messages = self._wake_bytes = 0
        self.limit(flow)

    def limit(self, flow: PublishFlow) -> None:
        """Other limits, from the next message on."""
        self._flow = flow
        unlimited = flow.on_limit == "ignore"
        self._limit_messages = (1 << 62) if unlimited else flow.max_messages
        self._limit_bytes = (1 << 62) if unlimited else flow.max_bytes

    @property
    def messages(self) -> int:
        """How many wait for their report."""
        return self.sent_messages - self.done_messages

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return self.sent_bytes - self.done_bytes

    def full(self, size: int) -> bool:
        """Whether `size` more bytes are too many now."""
        messages = self.sent_messages - self.done_messages
        return messages > 0 and (
            messages >= self._limit_messages
            or self.sent_bytes - self.done_bytes + size > self._limit_bytes
        )

    def make_room(self, size: int) -> None:
        """Waits for room with the lock released, or raises `ResourceExhausted`, as the topic's flow says."""
        if self._flow.on_limit == "error":
            raise ResourceExhausted(
                f"{self.messages} messages ({self.bytes} bytes) wait to be stored; PublishFlow allows "
                f"{self._flow.max_messages} ({self._flow.max_bytes} bytes): wait for futures, or raise its limits"
            )
        while self.full(size):
            self._wait_below(
                int(self._limit_messages * _LOW_WATER), min(int(self._limit_bytes * _LOW_WATER), self._limit_bytes - size)
            )

    def wait_settled(self, sent: int, timeout: float | None) -> bool:
        """Waits (with the lock held, released while waiting) until `sent` messages were reported."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.done_messages < sent:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            # Reports only look at thresholds, so a flush asks to be woken by each: it looks often enough itself.
            self._waiting += 1
            try:
                self._room.wait(0.05 if left is None else min(left, 0.05))
            finally:
                self._waiting -= 1
        return True

    def _wait_below(self, messages: int, size: int) -> None:
        self._wake_messages, self._wake_bytes = messages, size
        self._waiting += 1
        try:
            if self.messages > messages or self.bytes > size:
                self._room.wait()
        finally:
            self._waiting -= 1

    def settled(self, size: int) -> None:
        """A message was reported."""
        self.done_messages += 1
        self.done_bytes += size
        if self._waiting and self._roomy():
            with self._room:
                self._room.notify_all()

    def _roomy(self) -> bool:
        return self.messages <= self._wake_messages and max(self.bytes, 0) <= max(self._wake_bytes, 0)
