"""Synchronous pull of one subscription: opens a stream when `receive` is called, and ends it soon after the last call.

Theory. A consumer group divides its partitions among its members, and no other member delivers what one has fetched.
So a membership that isn't used holds messages back. `receive` can't know whether it will be called again, so it keeps
its membership only while it is in use, and a few seconds more.

Rules
1. The stream is a member of the group like that of a `pull`; all calls of one `PubSub` share it.
2. It ends when it was idle (`pull_queue`) for `IDLE` seconds: so never while a message that was returned may be acked.
3. It also ends at `stop`, and with the last `with` block; then open leases end, and no attempt is counted.
4. A call that comes while it ends opens the next one: no call gets a stream that is about to end by rule 2.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kafka_pubsub.config import FlowControl, SubscriptionRecord
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from kafka_pubsub.subscribe.stream.stream import Stream
from kafka_pubsub.subscribe.workers.pull_queue import PullQueue
from kafka_pubsub.subscribe.workers.thread_workers import WorkerPool

__all__ = ["IDLE", "Receiver"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds for which the stream may be idle. Few, because it keeps partitions from other members meanwhile; but longer
#: than a program's pause between two calls in a loop, because each join costs all members a rebalance.
IDLE = 5.0
#: `receive` leases only what it was asked for, so no limit is needed.
_FLOW = FlowControl(max_messages=1_000_000)


class OpenStream(Protocol):
    """Opens a stream, whose runner calls `watch` several times a second."""

    def __call__(
        self,
        make_worker_pool: Callable[[StreamRunner, str], WorkerPool],
        flow: FlowControl,
        watch: Callable[[], None],
    ) -> Stream: ...


#: Notes that a call has returned messages: these, the subscription, and since when it ran (nanoseconds since 1970).
Note = Callable[[Sequence[Message], SubscriptionRecord, int], None]


class Receiver:
    """Receives for one subscription."""

    def __init__(self, open_stream: OpenStream, note: Note) -> None:
        self._open_stream, self._note = open_stream, note
        self._lock = threading.Lock()
        #: The open session, if there is one.
        self._session: _Session | None = None
        #: How many `with` blocks are open.
        self._blocks = 0

    def receive(
        self, max_messages: int, timeout: float | None, cancelled: Callable[[], bool] = lambda: False
    ) -> list[Message]:
        """Returns up to `max_messages`; waits up to `timeout` seconds (None: without a limit) for the first.

        Once `cancelled` returns True, it takes no message and soon returns.
        """
        if not 1 <= max_messages <= 1_000_000:
            raise InvalidArgument(f"max_messages must be from 1 to 1000000, not {max_messages!r}")
        if timeout is not None and not timeout >= 0:  # NaN is neither
            raise InvalidArgument(f"timeout must not be negative, not {timeout!r}")
        since = time.time_ns()
        with self._lock:
            if self._session is None or self._session.stream.done():
                self._session = _Session(self._open_stream, self._give_up)
            session = self._session
            session.pull_queue.touch()
        done = session.stream.done
        messages = session.pull_queue.receive(max_messages, timeout, lambda: done() or cancelled())
        session.note_end_of_call()
        if messages:
            self._note(messages, session.record, since)
        elif done():
            session.stream.result(0)
        return messages

    def _give_up(self, session: _Session) -> bool:
        """Gives up an idle session; returns False if a call has come meanwhile."""
        with self._lock:
            if not session.is_idle():
                return False
            if self._session is session:
                self._session = None
            return True

    def enter(self) -> None:
        """Notes that a `with` block begins."""
        with self._lock:
            self._blocks += 1

    def leave(self) -> None:
        """Notes that a `with` block ends; the last one ends the stream."""
        with self._lock:
            self._blocks -= 1
            last = not self._blocks
        if last:
            self.stop()

    def stop(self) -> None:
        """Ends the stream now; messages that aren't acked are delivered again, and no attempt is counted."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.stream.close()


class _Session:
    """The time from the call that opens a stream to the end of that stream."""

    pull_queue: PullQueue
    record: SubscriptionRecord

    def __init__(self, open_stream: OpenStream, give_up: Callable[[_Session], bool]) -> None:
        self._give_up = give_up
        self._given_up = False
        #: Whether any call lasted until the group had answered.
        self._joined_in_time = False
        self.stream = open_stream(self._make_worker_pool, _FLOW, self._watch)

    def _make_worker_pool(self, runner: StreamRunner, name: str) -> WorkerPool:
        self._runner, self.record = runner, runner.rebalances.record
        self.pull_queue = PullQueue(runner.inbox, runner.wake)
        return self.pull_queue

    def is_idle(self) -> bool:
        """Returns whether it was idle for so long that it must end."""
        return self.pull_queue.idle(self._runner.coordinator.in_flight()) >= IDLE

    def note_end_of_call(self) -> None:
        """Notes that a call returns."""
        self._joined_in_time = self._joined_in_time or self._runner.rebalances.joined

    def _watch(self) -> None:
        if self._given_up or not self.is_idle() or not self._give_up(self):
            return
        self._given_up = True
        if not self._joined_in_time:
            log.warning(
                "subscription %r: receive() returned before this process had joined the consumer group, and wasn't "
                "called again for %g s, so the process leaves the group and has received nothing. Joining takes some "
                "seconds: give receive() a longer timeout, or call it again sooner",
                self._runner.subscription,
                IDLE,
            )
        self.stream.cancel()
