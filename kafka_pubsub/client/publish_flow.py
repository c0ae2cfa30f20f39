"""How much waits to be stored, and what `publish` does when it is too much.

Theory: messages are counted in epochs. A flush closes the current epoch and waits for it and those before, so it is
over when what was published before it was reported, however much is published meanwhile.

Rules
1. `sent` counters change under the topic's lock, `done` counters on the one thread that serves this topic's
   reports. Each has one writer, so a report takes no lock unless somebody waits.
2. Who waits says so first (`_waiting`) and looks afterwards; who settles counts first and looks for waiters
   afterwards. One of them sees the other: no wake-up is lost.
3. A message that is larger than the limit itself is admitted when nothing else waits: else it would wait for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kafka_pubsub.config import PublishFlow
from kafka_pubsub.errors import ResourceExhausted

__all__ = ["Epoch", "Outstanding"]

# Publishers that wait are woken when a quarter of the limit is free, not at every report: fewer switches of threads.
_LOW_WATER: Final = 0.75

_UNLIMITED: Final = 1 << 62


class Epoch:
    """Counts messages between two flushes: published, and reported."""

    __slots__ = ("done_bytes", "done_messages", "sent_bytes", "sent_messages")

    def __init__(self) -> None:
        self.sent_messages = self.sent_bytes = 0
        self.done_messages = self.done_bytes = 0

    @property
    def over(self) -> bool:
        """Whether all of it was reported."""
        return self.done_messages == self.sent_messages


class Outstanding:
    """A topic's messages between `publish` and their report. All but `settled` needs the topic's lock held."""

    __slots__ = (
        "_closed_messages",
        "_flow",
        "_limit_bytes",
        "_limit_messages",
        "_older",
        "_room",
        "_seen",
        "_waiting",
        "current",
    )

    def __init__(self, lock: threading.Lock, flow: PublishFlow) -> None:
        self.current = Epoch()
        self._older: list[Epoch] = []
        self._room = threading.Condition(lock)
        self._waiting = 0
        # For `advanced`: messages of closed epochs, and how many there were in all when it was asked last.
        self._closed_messages = self._seen = 0
        self.limit(flow)

    def limit(self, flow: PublishFlow) -> None:
        """Other limits, from now on; who waits looks again."""
        self._flow = flow
        unlimited = flow.on_limit == "ignore"
        self._limit_messages = _UNLIMITED if unlimited else flow.max_messages
        self._limit_bytes = _UNLIMITED if unlimited else flow.max_bytes
        if self._waiting:
            self._room.notify_all()

    @property
    def messages(self) -> int:
        """How many wait for their report."""
        return sum(epoch.sent_messages - epoch.done_messages for epoch in (*self._older, self.current))

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return sum(epoch.sent_bytes - epoch.done_bytes for epoch in (*self._older, self.current))

    def sent(self, size: int) -> Epoch:
        """Counts a message; its report names the epoch."""
        epoch = self.current
        epoch.sent_messages += 1
        epoch.sent_bytes += size
        return epoch

    def unsent(self, epoch: Epoch, size: int) -> None:
        """Takes the count back: the message was refused at once."""
        epoch.sent_messages -= 1
        epoch.sent_bytes -= size
        if self._waiting:
            self._room.notify_all()

    def settled(self, epoch: Epoch, size: int) -> None:
        """A message was reported. Without the lock; see rule 1."""
        epoch.done_messages += 1
        epoch.done_bytes += size
        if self._waiting and (epoch.over or self._roomy()):
            with self._room:
                self._room.notify_all()

    def full(self, size: int) -> bool:
        """Whether one more message of `size` bytes is too much now."""
        epoch = self.current
        if self._older:
            return self._exceeds(self.messages, self.bytes, size)
        return self._exceeds(
            epoch.sent_messages - epoch.done_messages, epoch.sent_bytes - epoch.done_bytes, size
        )

    def _exceeds(self, messages: int, held: int, size: int) -> bool:
        return messages > 0 and (messages >= self._limit_messages or held + size > self._limit_bytes)

    def _roomy(self) -> bool:
        return (
            self.messages <= self._limit_messages * _LOW_WATER
            and self.bytes <= self._limit_bytes * _LOW_WATER
        )

    def make_room(self, size: int) -> None:
        """Waits until a message of `size` bytes fits, or raises `ResourceExhausted`, as the topic's flow says."""
        if self._flow.on_limit == "error":
            raise ResourceExhausted(
                f"{self.messages} messages ({self.bytes} bytes) wait to be stored; PublishFlow allows "
                f"{self._flow.max_messages} ({self._flow.max_bytes} bytes): wait for futures, or raise its limits"
            )
        self._wait(lambda: not self.full(size), None)

    def wait_over(self, timeout: float | None) -> bool:
        """Closes the current epoch and waits until it and those before are over; whether they are in time."""
        if self.current.sent_messages:
            self._older.append(self.current)
            self._closed_messages += self.current.sent_messages
            self.current = Epoch()
        before = tuple(self._older)
        return self._wait(lambda: all(epoch.over for epoch in before), timeout)

    def advanced(self) -> bool:
        """Whether messages were counted since the last call, or some still wait."""
        count = self._closed_messages + self.current.sent_messages
        advanced = count != self._seen or self.messages > 0
        self._seen = count
        return advanced

    def pause(self, seconds: float) -> None:
        """Waits with the lock released."""
        self._room.wait(seconds)

    def _wait(self, good: Callable[[], bool], timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        self._waiting += 1
        try:
            while not good():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._room.wait(left)
            return True
        finally:
            self._waiting -= 1
            self._older = [epoch for epoch in self._older if not epoch.over]
