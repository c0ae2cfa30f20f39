"""Synchronous pull: a worker pool without callbacks. Leases wait in a queue until `receive` takes them out.

Rules
1. A lease is asked for only when a thread waits for a message, so no message is leased without a caller. Several
   threads may wait: the queue asks for the sum of what each still wants.
2. A message's clock starts when `receive` returns it: from then on it must be acked within the ack deadline. One that
   came when its call had just ended waits for the next call, and no attempt of it is counted.
3. The queue is idle while no call runs and no returned message has an open lease (it was acked or nacked, or its
   deadline has passed). An idle queue is closed (`receiver`), because its membership keeps partitions from other
   members.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner, Reports

__all__ = ["PullQueue"]

#: Seconds for which `receive` goes on collecting after the first message: a broker's batch arrives together.
COLLECT = 0.01
#: Seconds between checks whether the stream has ended, and for Ctrl-C on every platform.
LOOK = 0.25


class PullQueue:
    """The worker pool behind `receive`."""

    run = 1
    spread = False
    inline = None

    def __init__(
        self,
        reports: Reports,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reports = reports
        self._wake = wake
        self._clock = clock
        self._box: deque[LeaseRunner] = deque()
        #: Messages that waiting threads still want, and how many threads wait.
        self._wanted = self._waiting = 0
        self._changed = threading.Condition()
        #: When it was last seen not to be idle.
        self._used = clock()

    def wants(self, free: int) -> int:
        with self._changed:
            return max(0, min(free, self._wanted - len(self._box)))

    def soon(self, free: int) -> tuple[int, int]:
        return self.wants(free), 1

    def take(self, leases: Sequence[Lease]) -> None:
        with self._changed:
            for lease in leases:
                lease.lease_runner = lease_runner = LeaseRunner(lease, self._reports)
                self._box.append(lease_runner)
            self._changed.notify_all()

    def receive(self, most: int, timeout: float | None, ended: Callable[[], bool]) -> list[Message]:
        """Returns up to `most` messages; waits up to `timeout` seconds for the first one."""
        # Without a moment for the runner, a timeout of 0 would never find a message.
        until = None if timeout is None else time.monotonic() + max(timeout, COLLECT)
        messages: list[Message] = []
        with self._changed:
            self._wanted += most
            self._waiting += 1
        self._wake()
        try:
            while len(messages) < most and (message := self._next(until, ended)) is not None:
                messages.append(message)
                until = time.monotonic() + COLLECT
        finally:
            with self._changed:
                self._wanted -= most - len(messages)
                self._waiting -= 1
                self._used = self._clock()
        return messages

    def _next(self, until: float | None, ended: Callable[[], bool]) -> Message | None:
        with self._changed:
            while not ended():
                if (message := self._out()) is not None:
                    return message
                left = LOOK if until is None else min(LOOK, until - time.monotonic())
                if left <= 0:
                    return None
                self._changed.wait(left)
        return None

    def _out(self) -> Message | None:
        while self._box:
            lease_runner = self._box.popleft()
            message = lease_runner.begin()
            if message is None:  # its partition was revoked, or the stream is about to end
                lease_runner.let_go()
                self._reports.released(LeaseReport(lease_runner.lease, 0, LeaseOutcome.UNTOUCHED))
                continue
            self._reports.observer.begins(message)
            self._reports.observer.ends(message)  # a pull queue has no callback that could end later
            self._reports.released(lease_runner.left(message))
            self._wanted -= 1
            return message
        return None

    def touch(self) -> None:
        """Notes that a call is about to come."""
        with self._changed:
            self._used = self._clock()

    def idle(self, leases: int) -> float:
        """Returns for how many seconds it has been idle (rule 3); `leases`: the open ones, also in the queue."""
        with self._changed:
            now = self._clock()
            if self._waiting or leases > sum(not lease_runner.withdrawn for lease_runner in self._box):
                self._used = now
            return now - self._used

    def running(self) -> Iterable[LeaseRunner]:
        return ()

    def close(self, timeout: float | None) -> bool:
        return True
