"""Synchronous pull: a crew that calls nobody. Leases wait in a box until `receive` takes them out.

Rules
1. A lease is asked for only when somebody waits for a message, so nothing is leased that nobody asked for.
2. Its clock starts when it comes into the box: from then on it must be acked within the ack deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue

from kafka_pubsub.client.holders import Holder, Reports
from kafka_pubsub.core.leases import Lease
from kafka_pubsub.model import Message

__all__ = ["Mailbox"]

#: Seconds that `receive` goes on collecting after the first message: a batch of the broker's arrives together.
COLLECT = 0.01


class Mailbox:
    """The crew behind `receive`."""

    run = 1
    spread = False

    def __init__(self, reports: Reports, ring: Callable[[], None]) -> None:
        self._reports = reports
        self._ring = ring
        self._box: SimpleQueue[Message] = SimpleQueue()
        self._wanted = 0
        self._lock = threading.Lock()
        self.used = time.monotonic()

    def wants(self, free: int) -> int:
        return min(free, self._wanted)

    def take(self, leases: Sequence[Lease]) -> None:
        with self._lock:
            self._wanted = max(0, self._wanted - len(leases))
        for lease in leases:
            lease.holder = holder = Holder(lease, self._reports)
            message = holder.begin()
            assert message is not None
            self._reports.released(holder.left(message))
            self._box.put(message)

    def receive(self, most: int, timeout: float | None, ended: Callable[[], bool]) -> list[Message]:
        """Up to `most` messages; waits up to `timeout` seconds for the first one."""
        self.used = time.monotonic()
        with self._lock:
            self._wanted = max(0, most - self._box.qsize())
        self._ring()
        until = None if timeout is None else time.monotonic() + timeout
        messages: list[Message] = []
        try:
            while len(messages) < most and (message := self._next(messages, until, ended)) is not None:
                messages.append(message)
        finally:
            with self._lock:
                self._wanted = 0
            self.used = time.monotonic()
        return messages

    def _next(
        self, sofar: Sequence[Message], until: float | None, ended: Callable[[], bool]
    ) -> Message | None:
        while not ended():
            left = 0.25 if until is None else min(0.25, max(0.0, until - time.monotonic()))
            try:
                return self._box.get(timeout=COLLECT if sofar else left)
            except Empty:
                if sofar or (until is not None and time.monotonic() >= until):
                    return None
        return None

    def walking(self) -> Iterable[Holder]:
        return ()

    def close(self, timeout: float | None) -> bool:
        return True
