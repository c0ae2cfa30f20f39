"""Sends the messages of a topic with lanes in an order that a subscription can find again.

Theory. Kafka keeps the order of one lane. Across lanes a message names those that its publisher sent before it
(`lanes/headers.py`), and only what is stored has a name. So this sender lets a message wait for the answer to an
earlier one where the two lanes meet: in the same priority and partition, and in the same key. A waiting message waits
here, not the caller.

Rules
1. A line is a priority and a partition. Its messages are sent in the order of the calls. A message of the other class
   waits until all before it are stored or have failed. Each names the last stored one of the other class.
2. A message of a key waits until the key's messages in other lanes are stored or have failed, and names the last stored
   one of each: any of those between may be lost. The keys of the last `KEYS` to twice as many keyed messages are
   remembered.
3. A transient message holds others up for `ANSWER_S` after it was sent, then it is given up.
4. A message without a key gets its partition here, so that it belongs to a line.
5. One thread sends what waits; it lives while something does. It never waits for room in one lane while another could
   go on.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Final

from kafka_pubsub.config import PublishFlow
from kafka_pubsub.errors import DeadlineExceeded, PubSubError, ResourceExhausted
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import AFTER_HEADER, SEQUENCE_HEADER, Sent, after_header, sequence_header
from kafka_pubsub.lanes.lane_publisher import (
    LaneFuture,
    LanePublisher,
    Line,
    TransientFuture,
    Waiting,
    give_up_overdue,
)
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.log.transient import ANSWER_S
from kafka_pubsub.model import Header
from kafka_pubsub.publish.checks import headers_size, refuse_closed, refuse_forked

__all__ = ["KEYS", "LaneSender"]

_log = logging.getLogger("kafka_pubsub.publish")

#: Keyed messages after which a key that isn't used may be forgotten.
KEYS: Final = 50_000

# Messages without a key go to one partition for so many messages or seconds, so that they make full batches.
_RUN, _RUN_S = 500, 0.01

# Seconds between two tries where there is no future to wait for: for room, or for reports of a failed writer.
_POLL_S: Final = 0.005

# More than `ps-seq` takes, and more than each name in `ps-after`.
_SEQUENCE_BYTES: Final = 150
_NAME_BYTES: Final = 80


class _Keys:
    """The last message of each key, of the keys that were used lately."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._new: dict[bytes, LaneFuture] = {}
        self._old: dict[bytes, LaneFuture] = {}

    def get(self, key: bytes) -> LaneFuture | None:
        return self._new.get(key) or self._old.get(key)

    def put(self, key: bytes, message: LaneFuture) -> None:
        self._new[key] = message
        if len(self._new) >= self._most:
            # Messages without an answer are kept: a later one of their key must wait for them.
            self._old = {each: future for each, future in self._old.items() if not future.done()} | self._new
            self._new = {}


class LaneSender:
    """The lanes of one topic in one process. `open_lane` returns a lane's publisher, and makes the lane if need be."""

    def __init__(
        self,
        name: str,
        partitions: int,
        open_lane: Callable[[Lane], LanePublisher],
        flow: Callable[[], PublishFlow],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._partitions = partitions
        self._open_lane = open_lane
        self._flow = flow
        self._clock = clock
        self._publisher_id = uuid.uuid4().hex[:16]
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        # Notified when a message leaves the queue.
        self._room = threading.Condition(self._lock)
        self._opening = threading.Lock()
        self._lanes: dict[Lane, LanePublisher] = {}
        self._lines: dict[tuple[int, int], Line] = {}
        self._keys = _Keys(KEYS)
        # The lines with waiting messages, in the order in which they began to wait; and the sum of these messages.
        self._busy: dict[Line, None] = {}
        self._count = self._bytes = 0
        self._working = False
        # Ends the thread's wait when a line becomes busy.
        self._wake: Future[None] = Future()
        self._place, self._placed, self._place_until = random.randrange(partitions), 0, 0.0
        self._closed = self._forked = False

    @property
    def publishers(self) -> list[LanePublisher]:
        """The publishers of the lanes used by this process."""
        return list(self._lanes.values())

    @property
    def given_up(self) -> int:
        """How many transient messages have failed."""
        return sum(each.given_up for each in self.publishers)

    def lane(self, lane: Lane) -> LanePublisher:
        """Returns a lane's publisher; the first call for a lane asks the cluster."""
        found = self._lanes.get(lane)
        if found is not None:
            return found
        with self._opening:
            if lane not in self._lanes:
                self._check_open()
                self._lanes[lane] = self._open_lane(lane)
            return self._lanes[lane]

    def publish(
        self, lane: Lane, data: bytes, key: bytes | None, attributes: list[Header] | None
    ) -> LaneFuture:
        """Sends a message now or when its turn comes; raises what is wrong with it."""
        publisher = self._lanes.get(lane) or self.lane(lane)
        self._check(publisher, data, key, attributes)
        while True:
            with self._lock:
                future = self._offer(publisher, data, key, attributes)
                if future is not None:
                    return future
            publisher.prepare(len(data))

    def check(self, lane: Lane, data: bytes, key: bytes | None, attributes: list[Header] | None) -> None:
        """Raises what is wrong with a message, without sending it."""
        self._check(self.lane(lane), data, key, attributes)

    def _check(
        self, publisher: LanePublisher, data: bytes, key: bytes | None, attributes: list[Header] | None
    ) -> None:
        size = len(data) + _SEQUENCE_BYTES
        longest: list[Header] = [(SEQUENCE_HEADER, bytes(_SEQUENCE_BYTES - 20))]
        if key is not None and len(self._lanes) > 1:
            names = _NAME_BYTES * len(self._lanes)
            size += len(key) + names
            longest.append((AFTER_HEADER, bytes(names - 20)))
        elif key is not None:
            size += len(key)
        if attributes:
            size += headers_size(attributes)
        publisher.look(size, data, key, [*longest, *(attributes or ())])

    # -- one message; needs the lock -----------------------------------------------------------------------------

    def _offer(
        self, publisher: LanePublisher, data: bytes, key: bytes | None, attributes: list[Header] | None
    ) -> LaneFuture | None:
        """Sends or queues a message; None: the lane isn't ready. May release the lock to wait for room in the queue."""
        while True:
            self._check_open()
            previous = None if key is None else self._keys.get(key)
            line = self._line(publisher.lane.priority, key, previous)
            names = None if key is None else {} if previous is None else previous.names
            future = publisher.new_future(line, next(self._numbers), names)
            headers = attributes or []
            if not line.waiting and self._blocker(future, previous) is None:
                if not self._send(future, data, key, headers):
                    return None
                if key is not None and future.sent is not None:
                    self._keys.put(key, future)
                return future
            if self._may_wait(len(data)):
                self._queue(Waiting(future, data, key, headers, previous))
                return future
            self._room.wait()

    def _line(self, priority: int, key: bytes | None, previous: LaneFuture | None) -> Line:
        if key is None:
            partition = self._next_place()
        elif previous is not None and previous.line.partition < self._partitions:
            partition = previous.line.partition
        else:
            partition = partition_of(key, self._partitions)
        line = self._lines.get((priority, partition))
        if line is None:
            line = self._lines[priority, partition] = Line(partition)
        return line

    def _next_place(self) -> int:
        now = self._clock()
        if self._placed >= _RUN or now >= self._place_until:
            self._place = (self._place + 1) % self._partitions
            self._placed, self._place_until = 0, now + _RUN_S
        self._placed += 1
        return self._place

    def _blocker(self, future: LaneFuture, previous: LaneFuture | None) -> LaneFuture | None:
        """Returns the message for which this one must wait, or None."""
        for earlier in (future.line.last, previous):
            if earlier is not None and earlier.lane is not future.lane:
                if not earlier.done():
                    return earlier
                # The reports of a writer that has failed come in any order, so wait for all of them.
                publisher = earlier.lane
                if earlier.failure is not None and publisher.lane.durable and publisher.unsettled:
                    return earlier
        return None

    def _send(self, future: LaneFuture, data: bytes, key: bytes | None, attributes: list[Header]) -> bool:
        line, lane = future.line, future.lane.lane
        other = line.stored.get(Lane(lane.priority, not lane.durable))
        headers = [sequence_header(Sent(self._publisher_id, future.number, other)), *attributes]
        if after := {each: name for each, name in dict(future.names or {}).items() if each != lane}:
            headers.insert(0, after_header(after))
        future.sent = self._clock()
        if not future.lane.try_send(future, data, key, headers, line.partition):
            future.sent = None
            return False
        if (failure := future.failure) is not None:
            # It wasn't sent, because its key is paused. The future may have been handed out, so tell its waiters.
            future.sent = None
            future.settle(None, failure)
            return True
        line.last = future
        if isinstance(future, TransientFuture):
            while line.open and line.open[0].done():
                line.open.popleft()
            line.open.append(future)
        return True

    # -- the queue -------------------------------------------------------------------------------------------------

    def _may_wait(self, size: int) -> bool:
        """Returns whether the queue has room, as the topic's flow says."""
        flow = self._flow()
        full = self._count >= flow.max_messages or self._bytes + size > flow.max_bytes
        if not self._count or flow.on_limit == "ignore" or not full:
            return True
        if flow.on_limit == "error":
            raise ResourceExhausted(
                f"{self._count} messages ({self._bytes} bytes) of topic {self.name!r} wait for earlier ones in other "
                f"lanes; PublishFlow allows {flow.max_messages} ({flow.max_bytes} bytes): wait for futures, or raise "
                "its limits"
            )
        return False

    def _queue(self, message: Waiting) -> None:
        line = message.future.line
        line.waiting.append(message)
        if message.key is not None:
            self._keys.put(message.key, message.future)
        self._count += 1
        self._bytes += len(message.data)
        if line not in self._busy:
            self._busy[line] = None
            if not self._wake.done():
                self._wake.set_result(None)
        if not self._working:
            self._working = True
            threading.Thread(target=self._work, name="kafka-pubsub-lanes", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._wake = wake = Future[None]()
                blockers, unready = self._advance()
                if not self._count:
                    self._working = False
                    return
            for each in unready:
                self._make_ready(each)
            self._wait(blockers, wake, poll=bool(unready))

    def _advance(self) -> tuple[list[LaneFuture], list[Waiting]]:
        """Sends what can be sent; returns what the lines wait for, and the messages whose lanes aren't ready."""
        blockers: list[LaneFuture] = []
        unready: list[Waiting] = []
        for line in list(self._busy):
            for message in list(itertools.islice(line.waiting, _RUN)):
                blocker = self._blocker(message.future, message.previous)
                if blocker is not None:
                    blockers.append(blocker)
                    break
                try:
                    sent = self._send(message.future, message.data, message.key, message.headers)
                except PubSubError as error:
                    message.future.settle(None, error)
                    sent = True
                if not sent:
                    unready.append(message)
                    break
                self._leave(line)
            else:
                if line.waiting and not self._wake.done():
                    # Others get the lock before the rest.
                    self._wake.set_result(None)
        self._room.notify_all()
        return blockers, unready

    def _leave(self, line: Line) -> None:
        message = line.waiting.popleft()
        self._count -= 1
        self._bytes -= len(message.data)
        if not line.waiting:
            del self._busy[line]

    def _make_ready(self, message: Waiting) -> None:
        """Looks the lane's topic up if that is due; fails the message if the topic refuses it."""
        try:
            publisher = message.future.lane
            publisher.renew_if_doubtful()
        except PubSubError as error:
            with self._lock:
                line = message.future.line
                if line.waiting and line.waiting[0] is message:
                    self._leave(line)
                    message.future.settle(None, error)

    def _wait(self, blockers: Sequence[LaneFuture], wake: Future[None], poll: bool) -> None:
        """Waits until one of the messages is reported, or is to be given up; then gives up what is overdue."""
        open_ = [each for each in blockers if not each.done()]
        poll = poll or len(open_) < len(blockers)
        transient = [each for each in open_ if isinstance(each, TransientFuture)]
        ends = [each.sent + ANSWER_S for each in transient if each.sent is not None]
        limits = [end - self._clock() for end in ends] + [_POLL_S] * poll
        reporters = {found for each in open_ if (found := each.lane.reporter) is not None}
        for reporter in reporters:
            # The batch with the message goes out at once.
            reporter.flushing(1)
            reporter.wanted()
        try:
            waited: list[Future[Any]] = [*open_, wake]
            wait(waited, max(0.0, min(limits)) if limits else None, FIRST_COMPLETED)
        finally:
            for reporter in reporters:
                reporter.flushing(-1)
        for each in transient:
            with self._lock:
                late = list(each.line.open)
            give_up_overdue(late, self._clock() - ANSWER_S)

    # -- all messages ----------------------------------------------------------------------------------------------

    def would_block(self, lane: Lane, size: int) -> bool:
        """Returns whether `publish` would have to wait now: for the cluster, or for room."""
        publisher = self._lanes.get(lane)
        if publisher is None:
            return True
        flow = self._flow()
        full = flow.on_limit == "block" and self._count >= flow.max_messages
        return full or publisher.would_block(size)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all earlier messages are stored or have failed; `DeadlineExceeded` after `timeout` seconds."""
        end = None if timeout is None else self._clock() + timeout
        with self._lock:
            last = [line.waiting[-1].future for line in self._busy]
        for each in last:
            try:
                each.exception(None if end is None else max(0.0, end - self._clock()))
            except TimeoutError:
                raise DeadlineExceeded(
                    f"flush: {self._count} messages of topic {self.name!r} still wait for earlier ones in other lanes "
                    f"after {timeout:g} s; they are sent when those are stored"
                ) from None
        for publisher in self.publishers:
            publisher.flush(None if end is None else max(0.0, end - self._clock()))

    def close(self, timeout: float) -> None:
        """Takes no more messages, waits up to `timeout` seconds for what waits here, and closes the lanes."""
        end = self._clock() + timeout
        with self._lock:
            last = [line.waiting[-1].future for line in self._busy]
            self._closed = True
            self._room.notify_all()
        wait(last, max(0.0, end - self._clock()))
        with self._lock:
            if self._count:
                _log.warning("close: %d messages of topic %r weren't sent in time", self._count, self.name)
            for line in list(self._busy):
                for message in list(line.waiting):
                    self._leave(line)
                    message.future.settle(None, refuse_closed(self.name))
            if not self._wake.done():
                self._wake.set_result(None)
        for publisher in self.publishers:
            publisher.close(max(0.05, end - self._clock()))

    def forked(self) -> None:
        """Refuses messages in a forked child, because the thread and the queue are the parent's."""
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._room = threading.Condition(self._lock)
        self._forked = bool(self._lanes)

    def _check_open(self) -> None:
        if self._forked:
            raise refuse_forked(self.name)
        if self._closed:
            raise refuse_closed(self.name)
