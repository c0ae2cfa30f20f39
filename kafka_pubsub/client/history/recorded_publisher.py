"""A topic's publisher that tells a history what it sends, and what becomes of it.

Rules
1. Telling and queuing are one step, so that a history's numbers are in the order of each key's messages.
2. What is refused by the call itself was never sent, and isn't told.
3. An answer is told on the thread of the done-callbacks; closing waits a moment for those of what was flushed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import count

from kafka_pubsub.client.history.protocol import Histories, PublishHistory
from kafka_pubsub.client.publish.future import PublishFuture
from kafka_pubsub.client.publish.many import PublishFutures, PublishItem, read_items
from kafka_pubsub.client.publish.publisher import TopicPublisher
from kafka_pubsub.client.publish.topic_settings import PublishTarget
from kafka_pubsub.client.publish.writer_pool import WriterPool
from kafka_pubsub.errors import PubSubError

__all__ = ["new_publisher"]

#: Seconds that closing waits for answers that have come and weren't told: callbacks of a user's may be in front.
TELLING = 5.0


def new_publisher(
    topic: str, target: Callable[[], PublishTarget], writers: WriterPool, histories: Histories | None
) -> TopicPublisher:
    """The publisher of a topic."""
    if histories is None:
        return TopicPublisher(topic, target, writers)
    return RecordedPublisher(topic, target, writers, histories.of_publisher(topic))


class RecordedPublisher(TopicPublisher):
    """Publishes to one topic, and tells of it."""

    def __init__(
        self, name: str, target: Callable[[], PublishTarget], writers: WriterPool, history: PublishHistory
    ) -> None:
        super().__init__(name, target, writers)
        self._history = history
        self._numbers = count(1)
        self._telling = threading.Lock()
        self._untold = 0
        self._changed = threading.Condition()

    def publish(
        self,
        data: bytes,
        ordering_key: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> PublishFuture:
        with self._telling:
            number = next(self._numbers)
            try:
                self._history.send(number, ordering_key, data, attributes or {})
            except (
                TypeError,
                ValueError,
                AttributeError,
            ):  # not a message: the call says what is wrong with it
                return super().publish(data, ordering_key, attributes)
            try:
                future = super().publish(data, ordering_key, attributes)
            except BaseException as error:
                self._history.failed(number, f"{type(error).__name__}: {error}")
                raise
        with self._changed:
            self._untold += 1
        future.add_done_callback(partial(self._answered, number))
        return future

    def publish_many(self, items: Iterable[bytes | PublishItem]) -> PublishFutures:
        """One after the other, each told of; checked together before, and with the same answers."""
        messages = read_items(items)
        futures = PublishFutures(self._outstanding.current, len(messages.data))
        for index, arguments in enumerate(messages.arguments()):
            try:
                futures.made[index] = self.publish(*arguments)
            except PubSubError as error:
                if not index:
                    raise
                futures.fail_from(index, error)
                break
        return futures

    def _answered(self, number: int, future: Future[str]) -> None:
        error = future.exception()
        if error is not None:
            self._history.failed(number, f"{type(error).__name__}: {error}")
        else:
            _, partition, offset = future.result().rsplit(":", 2)
            if offset.isdecimal():
                self._history.stored(number, int(partition), int(offset))
            else:
                self._history.failed(number, "stored, the broker didn't say where")
        with self._changed:
            self._untold -= 1
            self._changed.notify_all()

    def close(self, timeout: float = 30) -> None:
        super().close(timeout)
        with self._changed:
            self._changed.wait_for(lambda: not self._untold, TELLING)
        self._history.close()
