"""Counts the messages that wait to be stored, and holds `publish` back when they are too many.

Theory: messages are counted in epochs. A flush closes the current epoch and waits for it and all earlier ones. So it
ends when all messages published before it are reported, however many are published meanwhile.

Rules
1. `sent` counters change under the topic's lock, `done` counters in delivery reports, which come one at a time. So one
   thread at a time changes each counter, and a report takes no lock unless a waiting thread may go on.
2. A waiting thread sets `look_at` first and reads the counters afterwards; a report counts first and reads `look_at`
   afterwards. So at least one of them sees the other. `look_at` is never above the messages sent, unless no thread
   waits: so the last report of an epoch always looks, and no wake-up is lost.
3. A message that is larger than the limit is admitted when no other message waits: else it would wait for ever.
   With no waiting thread a report looks now and then, to note how long its message took.
4. A report counts in an epoch only if its message was counted there, whenever Ctrl-C comes: else a flush would end
   early, or never.
5. The counters may reach `free_until_*` without a check: reports only make room, so this limit stays safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from kafka_pubsub.config import PublishFlow
from kafka_pubsub.errors import PubSubError, ResourceExhausted
from kafka_pubsub.log.clocks import Durations
from kafka_pubsub.model import StoredRecord

__all__ = ["Epoch", "Outstanding", "PublishOwner"]

# Waiting publishers are woken when a quarter of the limit is free, not at every report: fewer thread switches.
_LOW_WATER: Final = 0.75

# A look at all counters costs as much as five reports, so one report in so many looks; the second figure holds while no
# thread waits.
_LOOK_EACH: Final = 64
_SAMPLE_EACH: Final = 512

_UNLIMITED: Final = 1 << 62


class Callbacks(Protocol):
    """Runs the done-callbacks of futures."""

    def run(self, task: Callable[[], None]) -> None: ...


class PublishOwner(Protocol):
    """The part of the topic's publisher that a delivery report needs."""

    @property
    def name(self) -> str: ...
    @property
    def callbacks(self) -> Callbacks: ...
    def failed(self, key: bytes | None, error: object) -> PubSubError:
        """Returns the error of the future; the key is paused when this returns."""

    def waits(self, seconds: float | None) -> str:
        """Returns a text that says why a message isn't stored after so many seconds."""


class Epoch:
    """Counts the messages between two flushes: those published and those reported."""

    __slots__ = (
        "done_bytes",
        "done_messages",
        "free_until_bytes",
        "free_until_messages",
        "look_at",
        "outstanding",
        "owner",
        "sampled",
        "sent_bytes",
        "sent_messages",
    )

    def __init__(self, outstanding: Outstanding) -> None:
        self.outstanding = outstanding
        self.owner = outstanding.owner
        self.sent_messages = self.sent_bytes = 0
        self.done_messages = self.done_bytes = 0
        self.free_until_messages = self.free_until_bytes = 0
        # From so many reports on each looks whether a waiting thread may go on.
        self.look_at = 0
        # The reports up to the last one whose time was noted.
        self.sampled = 0

    @property
    def over(self) -> bool:
        """Whether all its messages were reported. A report may come before its message is counted as sent."""
        return self.done_messages >= self.sent_messages


class _Counted(Protocol):
    """A delivery report, which counts in its epoch."""

    epoch: Epoch


class Outstanding:
    """The messages of a topic that are published and not yet reported. All but `wake` needs the topic's lock."""

    __slots__ = (
        "_flow",
        "_limit_bytes",
        "_limit_messages",
        "_older",
        "_older_messages",
        "_room",
        "_seen",
        "_waiting",
        "_wanting_room",
        "current",
        "durations",
        "owner",
    )

    def __init__(self, owner: PublishOwner, lock: threading.Lock, flow: PublishFlow) -> None:
        self.owner = owner
        #: How long messages take until they are stored.
        self.durations = Durations()
        self.current = Epoch(self)
        # Closed epochs that aren't over; empty unless a flush was called lately.
        self._older: list[Epoch] = []
        self._room = threading.Condition(lock)
        self._waiting = 0
        # How many of the waiting threads wait for room, and not for the end of epochs.
        self._wanting_room = 0
        # For `advanced`: the messages of closed epochs, and the number of all messages at its last call.
        self._older_messages = self._seen = 0
        self.limit(flow)

    def limit(self, flow: PublishFlow) -> None:
        """Sets other limits and wakes the waiting threads, which check again."""
        self._flow = flow
        unlimited = flow.on_limit == "ignore"
        self._limit_messages = _UNLIMITED if unlimited else flow.max_messages
        self._limit_bytes = _UNLIMITED if unlimited else flow.max_bytes
        self.current.free_until_messages = self.current.free_until_bytes = 0
        if self._waiting:
            self._room.notify_all()

    @property
    def messages(self) -> int:
        """How many messages wait for their report."""
        return sum(epoch.sent_messages - epoch.done_messages for epoch in (*self._older, self.current))

    @property
    def bytes(self) -> int:
        """The bytes of the messages that wait for their report."""
        return sum(epoch.sent_bytes - epoch.done_bytes for epoch in (*self._older, self.current))

    def add(self, report: _Counted, size: int, append: Callable[[], None]) -> None:
        """Counts a message that `append` queues. After Ctrl-C in it no flush waits for the message."""
        report.epoch = epoch = self.current
        try:
            append()
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C, before the writer took the message or after
                report.epoch = Epoch(self)
            raise
        epoch.sent_messages += 1
        epoch.sent_bytes += size

    def make_room(self, size: int) -> None:
        """Waits until a message of `size` bytes fits, or raises `ResourceExhausted`, as the topic's flow says."""
        if not self._fits(size):
            if self._flow.on_limit == "error":
                raise ResourceExhausted(
                    f"{self.messages} messages ({self.bytes} bytes) wait to be stored; PublishFlow allows "
                    f"{self._flow.max_messages} ({self._flow.max_bytes} bytes): wait for futures, or raise its limits"
                )
            self._wanting_room += 1
            try:
                self._wait(lambda: self._fits(size), None)
            finally:
                self._wanting_room -= 1

    def _fits(self, size: int) -> bool:
        if self.full(size):
            return False
        epoch = self.current
        epoch.free_until_messages = epoch.sent_messages + max(self._limit_messages - self.messages, 1)
        epoch.free_until_bytes = epoch.sent_bytes + max(self._limit_bytes - self.bytes, size)
        return True

    def full(self, size: int) -> bool:
        """Returns whether a message of `size` bytes doesn't fit now."""
        messages = self.messages
        return messages > 0 and (messages >= self._limit_messages or self.bytes + size > self._limit_bytes)

    @property
    def reported(self) -> int:
        """How many messages had their report."""
        return self._older_messages + self.current.sent_messages - self.messages

    def wake(self, epoch: Epoch, record: StoredRecord) -> None:
        """Wakes waiting threads if a report lets them go on, and sets the next look; called without the lock."""
        if self._waiting and (
            epoch.over
            or (
                self._wanting_room
                and self.messages <= self._limit_messages * _LOW_WATER
                and self.bytes <= self._limit_bytes * _LOW_WATER
            )
        ):
            with self._room:
                self._room.notify_all()
        waits, step = self.messages, 1
        if waits:
            step = max(1, min(_LOOK_EACH, waits // 8) if self._waiting else min(_SAMPLE_EACH, waits // 2))
        epoch.look_at = min(epoch.sent_messages, epoch.done_messages + step)
        run, epoch.sampled = epoch.done_messages - epoch.sampled, epoch.done_messages
        # librdkafka's reports know how long their message took; those of other logs don't.
        latency: Callable[[], float | None] | None = getattr(record, "latency", None)
        if latency is not None and (seconds := latency()) is not None:
            self.durations.add(seconds, run)

    def wait_over(self, timeout: float | None) -> bool:
        """Closes the current epoch and waits until it and all earlier ones are over; False after `timeout` seconds."""
        if self.current.sent_messages:
            # In this order: `reported` is read without the lock, and may be too small for a moment, but not too large.
            closed, self.current = self.current, Epoch(self)
            self._older.append(closed)
            self._older_messages += closed.sent_messages
        before = tuple(self._older)
        return self._wait(lambda: all(epoch.over for epoch in before), timeout)

    def advanced(self) -> bool:
        """Returns whether messages were counted since the last call, or some still wait."""
        count = self._older_messages + self.current.sent_messages
        advanced = count != self._seen or self.messages > 0
        self._seen = count
        return advanced

    def pause(self, seconds: float) -> None:
        """Waits for `seconds` with the lock released."""
        self._room.wait(seconds)

    def _wait(self, good: Callable[[], bool], timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        self._waiting += 1
        try:
            while True:
                # Set each time: another flush may have made a new epoch meanwhile.
                for epoch in (*self._older, self.current):
                    epoch.look_at = 0
                if good():
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._room.wait(left)
        finally:
            self._waiting -= 1
            self._older = [epoch for epoch in self._older if not epoch.over]
            for epoch in (*self._older, self.current):
                epoch.look_at = 0
