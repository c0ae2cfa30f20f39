"""A publisher process of a round: keyed messages at a steady rate, most of them of a few keys (Zipf).

It writes down the fingerprints of poison before it publishes it. SIGTERM ends it early, in good order.
"""

from __future__ import annotations

import faulthandler
import hashlib
import itertools
import queue
import random
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.history.history import fingerprint
from kafka_pubsub.services.signals import StopFlag
from tests.faults.delayed import ENDING, Diary
from tests.faults.plan import PublisherPlan

__all__ = ["intact", "payload"]

#: How steeply the keys' shares fall: the k-th most used gets 1/k of the first.
ZIPF = 1.0
#: Seconds that the last messages may take; longer than any fault lasts.
FLUSH = 120.0
#: Bytes of a body before its checksum.
SMALLEST, LARGEST = 20, 400
DIGEST = 8
#: Keys of delayed messages, and their delays in seconds.
DELAYED_KEYS = 20
SHORTEST, LONGEST = 0.1, 15.0
#: The share of messages that name no priority.
DEFAULT_PRIORITY = 0.6


def payload(random_bytes: Callable[[int], bytes], size: int) -> bytes:
    """A body that proves by itself that it is whole."""
    body = random_bytes(size)
    return body + hashlib.blake2b(body, digest_size=DIGEST).digest()


def intact(data: bytes) -> bool:
    """Whether a body is one that `payload` made."""
    return hashlib.blake2b(data[:-DIGEST], digest_size=DIGEST).digest() == data[-DIGEST:]


class Publisher:
    """Publishes by its plan until it is told to stop."""

    def __init__(self, plan: PublisherPlan, topic: Topic) -> None:
        self._plan, self._topic = plan, topic
        self._rng = random.Random(plan.seed)
        self._keys = [f"{plan.name}-{rank}" for rank in range(plan.keys)]
        weights = [1 / (rank + 1) ** ZIPF for rank in range(plan.keys)]
        self._weights = list(itertools.accumulate(weights))
        self._diary = Diary(plan.path.with_suffix(ENDING))
        #: Keys of messages that failed; publishing to them has paused.
        self._paused: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.stop = StopFlag()

    def run(self) -> None:
        began = time.monotonic()
        for number in itertools.count():
            due = began + number / self._plan.rate
            if due > began + self._plan.seconds or self.stop.wait(max(0.0, due - time.monotonic())):
                break
            while not self._paused.empty():
                self._topic.resume(self._paused.get())
            if 100 * self._rng.random() < self._plan.delayed_percent:
                self._publish_later()
            else:
                self._publish(number)
        self._topic.flush(FLUSH)

    def _publish(self, number: int) -> None:
        (key,) = self._rng.choices(self._keys, cum_weights=self._weights)
        data = payload(self._rng.randbytes, self._rng.randint(SMALLEST, LARGEST))
        poison = self._plan.poison_of(number)
        attributes = {} if poison is None else {"poison": poison}
        if poison is not None:
            with self._plan.path.with_suffix(".poison").open("a") as file:
                file.write(fingerprint(key.encode(), data, attributes) + "\n")
        future = self._topic.publish(data, ordering_key=key, attributes=attributes, priority=self._priority())
        future.add_done_callback(lambda done: self._resume_later(key, done))

    def _publish_later(self) -> None:
        number = self._rng.randrange(DELAYED_KEYS)
        key, data = f"{self._plan.name}-later-{number}", payload(self._rng.randbytes, SMALLEST)
        sha = fingerprint(key.encode(), data, {})
        self._diary.sending(sha)
        due = round(time.time() + self._rng.uniform(SHORTEST, LONGEST), 3)
        at = datetime.fromtimestamp(due, UTC)
        future = self._topic.publish(
            data, ordering_key=key, deliver_at=at, priority=number % self._plan.priorities
        )
        future.add_done_callback(lambda done: self._diary.answered(sha, key, due, done))
        future.add_done_callback(lambda done: self._resume_later(key, done))

    def _priority(self) -> int | None:
        """Most messages have the default priority: each change of a key's lane takes a round trip."""
        if self._plan.priorities == 1 or self._rng.random() < DEFAULT_PRIORITY:
            return None
        return self._rng.randrange(self._plan.priorities)

    def _resume_later(self, key: str, done: Future[str]) -> None:
        if done.exception() is not None:
            self._paused.put(key)


def main() -> None:
    """The process: its single argument is its plan."""
    plan = PublisherPlan.read(sys.argv[1])
    with PubSub(plan.bootstrap, history=plan.told) as ps:
        publisher = Publisher(plan, ps.topic(plan.topic))
        faulthandler.register(signal.SIGUSR2)
        signal.signal(signal.SIGTERM, lambda *_: publisher.stop.set())
        plan.path.touch()
        publisher.run()


if __name__ == "__main__":
    main()
