"""Messages that die, for tests of the events afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafka_pubsub import DeadLetterMessage, DeadLetterPolicy, Message, PubSub, RetryPolicy, Subscription
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.model import TopicPartition
from tests.support import until

__all__ = ["PATIENCE", "POLICY", "QUICK", "Handler", "deliver", "kill", "publish", "starts", "until"]

#: Seconds after which a test gives up; far above the time that anything here takes.
PATIENCE = 30.0
QUICK = RetryPolicy(min_backoff=0.001, max_backoff=0.002)
POLICY = DeadLetterPolicy(topic="dead", max_attempts=5)


class Handler:
    """Fails the messages that `fails` names; remembers the acked messages, and how each looked then."""

    def __init__(self, fails: Callable[[Message], bool] = lambda message: False) -> None:
        self.fails = fails
        self.acked: list[Message] = []
        self.changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        if self.fails(message):
            message.nack()
            return
        message.ack()
        with self.changed:
            self.acked.append(message)
            self.changed.notify_all()

    def wait_for(self, count: int) -> list[Message]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.acked) >= count, PATIENCE), len(self.acked)
            return list(self.acked)


def publish(ps: PubSub, *messages: tuple[str | None, bytes]) -> list[str]:
    topic = ps.topic("orders")
    return [
        topic.publish(data, ordering_key=key, attributes={"n": data.decode()}).result(PATIENCE)
        for key, data in messages
    ]


def kill(
    sub: Subscription, count: int, dies: Callable[[Message], bool] = lambda message: True
) -> list[DeadLetterMessage]:
    """Has messages die, until there are `count` dead letters."""
    with sub.pull(Handler(dies)):
        until(lambda: len(list(sub.dead_letters())) >= count)
    return list(sub.dead_letters())


def deliver(sub: Subscription, count: int) -> list[Message]:
    """The next deliveries; fails if more come than that."""
    callback = Handler()
    with sub.pull(callback):
        callback.wait_for(count)
        until(lambda: sub.state().lag == 0)
    assert len(callback.acked) == count
    return callback.acked


def starts(backend: MemoryBackend) -> dict[int, int]:
    return {
        place.partition: backend.admin.log_range(place)[0]
        for place in (TopicPartition("dead", number) for number in range(2))
    }
