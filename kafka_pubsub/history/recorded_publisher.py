"""A topic's publisher that records its messages and their results in a history.

Rules
1. A message is recorded and queued in one step, so that a history's numbers are in the order of each key's messages.
2. Arguments that aren't a message aren't recorded, nor are the items of a `publish_many` that raises. A message that
   `publish` refuses is recorded as failed.
3. An answer is recorded on the thread of the done-callbacks; `close` waits a moment for those of flushed messages.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Self

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.history.protocol import PublishHistory, number_of
from kafka_pubsub.lane_names import lane_of
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.publish.future import PublishFuture
from kafka_pubsub.publish.home import Home
from kafka_pubsub.publish.many import Messages, PublishFutures

__all__ = ["RecordedPublisher"]

#: Seconds that `close` waits until the answers that came are recorded: a user's callbacks may run before ours.
TELLING = 5.0


class RecordedPublisher(Home):
    """Makes another publisher record; `record` comes before its first message."""

    def record(self, history: PublishHistory) -> Self:
        """Records in this history from now on."""
        self._history = history
        self._numbers = count(1)
        self._telling = threading.Lock()
        self._unrecorded = 0
        self._changed = threading.Condition()
        return self

    def publish(
        self,
        data: bytes,
        ordering_key: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Future[str]:
        causal = False
        with contextlib.suppress(PubSubError):  # the call below raises it, and the message counts as failed
            causal = self.is_causal()
        if causal:  # no history tells of the messages that a sequencer orders
            return super().publish(data, ordering_key, attributes)
        return self._record(super().publish, data, ordering_key, attributes)

    def publish_in(
        self,
        data: bytes,
        ordering_key: str | None,
        attributes: Mapping[str, str] | None,
        priority: int | None,
        durable: bool | None,
    ) -> Future[str]:
        self.choose(priority, durable)
        if not self.laned:
            return self.publish(data, ordering_key, attributes)
        publish = partial(self._publish_in_lane, priority, durable)
        return self._record(publish, data, ordering_key, attributes)

    def _publish_in_lane(
        self,
        priority: int | None,
        durable: bool | None,
        data: bytes,
        ordering_key: str | None,
        attributes: Mapping[str, str] | None,
    ) -> Future[str]:
        return super().publish_in(data, ordering_key, attributes, priority, durable)

    def _record(
        self,
        publish: Callable[[bytes, str | None, Mapping[str, str] | None], Future[str]],
        data: bytes,
        ordering_key: str | None,
        attributes: Mapping[str, str] | None,
    ) -> Future[str]:
        with self._telling:
            number = next(self._numbers)
            try:
                self._history.send(number, ordering_key, data, attributes or {})
            except (
                TypeError,
                ValueError,
                AttributeError,
            ):  # the arguments aren't a message: the call raises an error that says why
                return publish(data, ordering_key, attributes)
            try:
                future = publish(data, ordering_key, attributes)
            except BaseException as error:
                self._history.failed(number, f"{type(error).__name__}: {error}")
                raise
        with self._changed:
            self._unrecorded += 1
        future.add_done_callback(partial(self._answered, number))
        return future

    def queue_run(self, messages: Messages, futures: PublishFutures, start: int, end: int) -> None:
        """Does what `TopicPublisher.queue_run` does, but publishes the messages one by one and records each."""
        for index, arguments in enumerate(messages.arguments(start, end), start):
            future = self._publish_item(*arguments, *messages.lanes.get(index, (None, None)))
            assert isinstance(future, PublishFuture), "a causal topic refuses publish_many"
            futures.made[index] = future
            futures.queued = index + 1

    def _publish_item(
        self,
        data: bytes,
        ordering_key: str | None,
        attributes: Mapping[str, str] | None,
        priority: int | None,
        durable: bool | None,
    ) -> Future[str]:
        if priority is None and durable is None:
            return self.publish(data, ordering_key, attributes)
        return self.publish_in(data, ordering_key, attributes, priority, durable)

    def _answered(self, number: int, future: Future[str]) -> None:
        error = future.exception()
        if error is not None:
            self._history.failed(number, f"{type(error).__name__}: {error}")
        else:
            topic, partition, offset = future.result().rsplit(":", 2)
            if offset.isdecimal():
                found = None if topic == self.name else lane_of(topic)
                index = 0 if found is None else found[1].number
                place = PartitionId(index, int(partition))
                self._history.stored(number, number_of(place), int(offset))
            else:
                self._history.failed(number, "stored, the broker didn't say where")
        with self._changed:
            self._unrecorded -= 1
            self._changed.notify_all()

    def close(self, timeout: float = 30) -> None:
        super().close(timeout)
        with self._changed:
            self._changed.wait_for(lambda: not self._unrecorded, TELLING)
        self._history.close()
