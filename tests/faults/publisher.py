"""A publisher process of a round: keyed messages at a steady rate, most of them of a few keys (Zipf).

It tells its history what it is about to publish and what became of it. SIGTERM ends it early, in good order.
"""

from __future__ import annotations

import hashlib
import itertools
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.observe.history import HistoryFile, fingerprint
from tests.faults.plan import PublisherPlan

__all__ = ["intact", "payload"]

#: How steeply the keys' shares fall: the k-th most used gets 1/k^1.1 of the first.
ZIPF = 1.1
#: Seconds that the last messages may take; longer than any fault lasts.
FLUSH = 120.0
#: Bytes of a body before its checksum.
SMALLEST, LARGEST = 20, 400
DIGEST = 8


def payload(random_bytes: Callable[[int], bytes], size: int) -> bytes:
    """A body that proves by itself that it is whole."""
    body = random_bytes(size)
    return body + hashlib.blake2b(body, digest_size=DIGEST).digest()


def intact(data: bytes) -> bool:
    """Whether a body is one that `payload` made."""
    return hashlib.blake2b(data[:-DIGEST], digest_size=DIGEST).digest() == data[-DIGEST:]


class Publisher:
    """Publishes by its plan until it is told to stop."""

    def __init__(self, plan: PublisherPlan, topic: Topic, history: HistoryFile) -> None:
        self._plan, self._topic, self._history = plan, topic, history
        self._rng = random.Random(plan.seed)
        self._keys = [f"{plan.name}-{rank}" for rank in range(plan.keys)]
        weights = [1 / (rank + 1) ** ZIPF for rank in range(plan.keys)]
        self._weights = list(itertools.accumulate(weights))
        #: Keys of messages that failed; publishing to them has paused.
        self._paused: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.stop = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        for number in itertools.count():
            due = began + number / self._plan.rate
            if due > began + self._plan.seconds or self.stop.wait(max(0.0, due - time.monotonic())):
                break
            while not self._paused.empty():
                self._topic.resume(self._paused.get())
            self._publish(number)
        self._topic.flush(FLUSH)

    def _publish(self, number: int) -> None:
        (key,) = self._rng.choices(self._keys, cum_weights=self._weights)
        data = payload(self._rng.randbytes, self._rng.randint(SMALLEST, LARGEST))
        poison = self._plan.poison_of(number)
        attributes = {} if poison is None else {"poison": poison}
        self._history.send(number, key, fingerprint(key.encode(), data, attributes))
        future = self._topic.publish(data, ordering_key=key, attributes=attributes)
        future.add_done_callback(lambda done: self._note(number, key, done))

    def _note(self, number: int, key: str, done: Future[str]) -> None:
        if error := done.exception():
            self._history.failed(number, f"{type(error).__name__}: {error}")
            self._paused.put(key)
            return
        _, partition, offset = done.result().rsplit(":", 2)
        self._history.stored(number, int(partition), int(offset))


def main() -> None:
    """The process: its one argument is its plan."""
    plan = PublisherPlan.read(sys.argv[1])
    history = HistoryFile(plan.path, role="publisher", topic=plan.topic)
    with PubSub(plan.bootstrap) as ps:
        publisher = Publisher(plan, ps.topic(plan.topic), history)
        signal.signal(signal.SIGTERM, lambda *_: publisher.stop.set())
        publisher.run()
    history.close()


if __name__ == "__main__":
    main()
