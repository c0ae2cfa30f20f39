"""Publishing to one lane of a topic, and the futures of its messages.

Rules
1. A lane's publisher sends what it is given and never queues for another lane's sake; `lane_sender.py` decides when.
2. All lanes of a topic share the paused keys: after a durable message failed, its key is refused in every lane. A
   transient message that fails pauses nothing.
3. A transient message is given up once: a report that comes later changes nothing, and the message is never named.
4. What is stored is noted before its future resolves: a later message is sent at once then, and names it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import Name
from kafka_pubsub.log.transient import given_up
from kafka_pubsub.model import Header, StoredRecord
from kafka_pubsub.publish.future import PublishFuture
from kafka_pubsub.publish.publisher import PublishTarget, TopicPublisher
from kafka_pubsub.publish.topic_settings import fresh
from kafka_pubsub.publish.writer_pool import ANY_PARTITION, NOW, ReportThread, WriterPool

__all__ = ["LaneFuture", "LanePublisher", "Line", "TransientFuture"]

# A publisher serves reports after so many messages, a power of two less one, as in `publisher.py`.
_TURN_MASK = 511

_new = object.__new__

_NONE = Name(-1, 0)

# Decides between a report and giving up; held for a few instructions.
_deciding = threading.Lock()


class Line:
    """The messages of one priority and partition, in both classes.

    `last` was sent last. `open`: the transient messages that may be without an answer. `stored`: by lane, the last one
    stored.
    """

    __slots__ = ("last", "open", "partition", "stored", "waiting")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.last: LaneFuture | None = None
        self.open: deque[TransientFuture] = deque()
        self.waiting: deque[Waiting] = deque()
        self.stored: dict[Lane, Name] = {}


class LaneFuture(PublishFuture):
    """The future of a message in a lane.

    `number` counts its publisher's messages to the topic. `names`: by lane, the last stored message of its key, shared
    by all of the key; None: it has no key. `sent`: when it was handed to the writer; None before.
    """

    __slots__ = ("lane", "line", "names", "number", "sent")

    lane: LanePublisher
    line: Line
    number: int
    names: dict[Lane, Name] | None
    sent: float | None

    def __call__(self, error: object, record: StoredRecord) -> None:
        if error is None:  # rule 4
            lane, offset = self.lane, record.offset()
            name = Name(self.number, 0) if offset is None else Name(self.number, offset, lane.log)
            for names in (self.line.stored, self.names):
                # The reports of a writer that has failed come in any order.
                if names is not None and self.number > names.get(lane.lane, _NONE).number:
                    names[lane.lane] = name
        super().__call__(error, record)

    @property
    def failure(self) -> PubSubError | None:
        """The error with which the message failed, without waiting."""
        return self._outcome if isinstance(self._outcome, PubSubError) else None


class TransientFuture(LaneFuture):
    """The future of a message in a transient lane."""

    __slots__ = ()

    def __call__(self, error: object, record: StoredRecord) -> None:
        with _deciding:
            if self._outcome is None:
                super().__call__(error, record)
                return
        epoch = self.epoch
        epoch.done_messages = done = epoch.done_messages + 1
        epoch.done_bytes += len(record)
        if done >= epoch.look_at:
            epoch.outstanding.wake(epoch, record)

    def give_up(self) -> None:
        """Fails the message unless its report has come."""
        with _deciding:
            if self._outcome is None:
                self.lane.given_up += 1
                self.settle(None, given_up())


class Waiting:
    """A message that waits for its turn: `previous` is the one of its key before it, in whichever lane."""

    __slots__ = ("data", "future", "headers", "key", "previous")

    def __init__(
        self,
        future: LaneFuture,
        data: bytes,
        key: bytes | None,
        headers: list[Header],
        previous: LaneFuture | None,
    ) -> None:
        self.future, self.data, self.key, self.headers, self.previous = future, data, key, headers, previous


class LanePublisher(TopicPublisher):
    """Publishes to one lane."""

    def __init__(
        self,
        name: str,
        lane: Lane,
        target: Callable[[], PublishTarget],
        writers: WriterPool,
        paused: dict[bytes, PubSubError],
    ) -> None:
        super().__init__(name, target, writers)
        self.lane = lane
        self._durable = lane.durable
        #: Kafka's id of the lane's topic; "" until a broker has answered.
        self.log = ""
        self._paused = paused
        self._future: type[LaneFuture] = LaneFuture if lane.durable else TransientFuture
        #: How many transient messages failed, most of them for want of an answer.
        self.given_up = 0

    @property
    def reporter(self) -> ReportThread | None:
        """The writer that is used now; None before the first message."""
        return self._last_reporter

    @property
    def failures(self) -> int:
        """How many messages failed, those that were given up included."""
        return super().failures if self.lane.durable else self._refusals + self.given_up

    @property
    def stored(self) -> int:
        """How many messages were stored and not given up before."""
        if self.lane.durable:
            return super().stored
        self._told = max(self._told, self._outstanding.reported - self.given_up)
        return self._told

    @property
    def unsettled(self) -> bool:
        """Whether messages wait for their report."""
        with self._lock:
            return self._outstanding.messages > 0

    def _apply(self, target: PublishTarget) -> None:
        self.log = target.topic_id
        super()._apply(target)

    def new_future(self, line: Line, number: int, names: dict[Lane, Name] | None) -> LaneFuture:
        """Returns the future of a message that isn't sent yet."""
        future = _new(self._future)  # as its `__init__` does
        future.epoch = self._outstanding.current
        future._outcome = future._waiting = future.sent = None
        future.lane, future.line, future.number, future.names = self, line, number, names
        return future

    def look(self, size: int, data: bytes, key: bytes | None, headers: list[Header]) -> None:
        """Raises what the topic refuses a message for now; `size` is an upper bound of its size."""
        if size > self._small:
            self._look(data, key, headers)
        if key is not None and self._no_keys is not None:
            raise fresh(self._no_keys)

    def try_send(
        self, future: LaneFuture, data: bytes, key: bytes | None, headers: list[Header], partition: int
    ) -> bool:
        """Hands a message to the writer, or returns False if that had to wait; then call `prepare` and try again.

        A message whose key is paused fails.
        """
        where = partition if key is None else ANY_PARTITION
        with self._lock:
            epoch = self._outstanding.current
            quick = self._channel.quick
            if (
                quick is None
                or self._paused
                or self._no_keys is not None
                or epoch.sent_messages >= epoch.free_until_messages
                or epoch.sent_bytes + len(data) > epoch.free_until_bytes
            ):
                if not self._is_ready(len(data)):
                    return False
                self._publish_with_care(future, data, key, headers, where)
                count = 1
            else:
                future.epoch = epoch
                try:
                    quick(self.name, data, key, where, future, None, NOW, headers)
                except BaseException as error:
                    self._refused(future, data, key, headers, error, where)
                    return True
                epoch.sent_messages = count = epoch.sent_messages + 1
                epoch.sent_bytes += len(data)
        if not count & _TURN_MASK and self._last_reporter is not None:
            self._last_reporter.take_turn()
        return True

    def _is_ready(self, size: int) -> bool:
        return self._small >= 0 and self._reporter is not None and not self._outstanding.full(size)

    def would_block(self, size: int) -> bool:
        """Returns whether `try_send` would refuse a message of `size` bytes now."""
        with self._lock:
            return not self._is_ready(size)

    def prepare(self, size: int) -> None:
        """Waits until `try_send` can take a message of `size` bytes; raises what the topic's flow or state says."""
        self.renew_if_doubtful()
        with self._lock:
            self._ready(size)

    def renew_if_doubtful(self) -> None:
        """Looks the topic up if that is due, and takes a writer, without waiting for room."""
        if self._small < 0:
            self._look_up()
        if self._reporter is None:
            # Its first call for a topic may ask a broker, so it is made without the lock.
            self._writers.reporter(self._batching, self._limit, self._durable).channel(self.name)
            with self._lock:
                if self._reporter is None:
                    self._next_reporter()

    def failed(self, key: bytes | None, error: object) -> PubSubError:
        """Pauses the key of a failed durable message; returns the error that its future raises."""
        if self.lane.durable:
            return super().failed(key, error)
        self.given_up += 1
        return super().failed(None, error)


def give_up_overdue(futures: Iterable[TransientFuture], before: float) -> None:
    """Gives up the messages that were sent before a time and have no answer."""
    for each in futures:
        if each.sent is not None and each.sent <= before:
            each.give_up()
