"""What `kafka-pubsub bench` measures, over a `PubSub`: publishing, pulling and latency."""

from __future__ import annotations

import contextlib
import secrets
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from kafka_pubsub.errors import DeadlineExceeded, FailedPrecondition, PermissionDenied, PubSubError

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.cli.progress import Tell
    from kafka_pubsub.model import Message
    from kafka_pubsub.subscription import Subscription
    from kafka_pubsub.topic import Topic

__all__ = ["Figures", "Load", "measure_latency", "measure_publishing", "measure_pulling"]

#: A row of the answer.
Figures = dict[str, int | float]

#: Messages between two reports of the progress.
_STEP = 5000
#: Seconds without a message after which a measurement fails.
_SILENCE_S = 30.0
#: Seconds at the begin of a latency measurement that don't count: joining, first batches, cold caches.
_WARM_UP_S = 2.0
#: A message begins with the time at which it was meant to leave, in nanoseconds.
_STAMP = struct.Struct(">q")


@dataclass(frozen=True)
class Load:
    """The messages to publish: their number and size, and the keys and partitions they are spread over."""

    messages: int
    size: int
    keys: int
    partitions: int

    def key(self, number: int) -> str:
        """Returns the ordering key of message `number`."""
        return f"key-{number % self.keys}"

    def body(self, stamp: int = 0) -> bytes:
        """Returns a body that begins with `stamp`; the rest is random, so that nothing compresses it."""
        return _STAMP.pack(stamp) + _filler(self.size - _STAMP.size)


@lru_cache(maxsize=1)
def _filler(count: int) -> bytes:
    return secrets.token_bytes(count)


def measure_publishing(pubsub: PubSub, load: Load, tell: Tell) -> Figures:
    """Measures how many messages a second are stored; raises the error of the first refused message."""
    with _topic(pubsub, load) as topic:
        topic.publish(load.body(), ordering_key=load.key(0)).result(_SILENCE_S)  # connect, before time counts
        started = time.perf_counter()
        _publish(topic, load, tell)
        return _throughput(load, time.perf_counter() - started)


def _publish(topic: Topic, load: Load, tell: Tell) -> None:
    numbers = iter(range(load.messages))
    waiting: list[Future[str]] = []
    done = 0
    while batch := list(islice(numbers, _STEP)):
        futures = [topic.publish(load.body(), ordering_key=load.key(number)) for number in batch]
        done += len(waiting)
        _await_all(waiting)
        waiting = futures
        tell("publishing", done, load.messages)
    _await_all(waiting)
    tell("publishing", load.messages, load.messages)


def _await_all(futures: list[Future[str]]) -> None:
    for future in futures:
        future.result(_SILENCE_S)


def measure_pulling(pubsub: PubSub, load: Load, tell: Tell, *, work: float, workers: int | None) -> Figures:
    """Measures how many messages a second are delivered and acked, from the first delivery on."""
    with _topic(pubsub, load) as topic, _subscription(pubsub, topic) as subscription:
        _publish(topic, load, tell)
        counter = _Counter(load.messages)

        def take(message: Message) -> None:
            if work:
                time.sleep(work)
            message.ack()
            counter.count()

        with subscription.pull(take, max_workers=workers) as stream:
            while not counter.full.wait(0.1):
                tell("pulling", counter.seen, load.messages)
                if stream.done():
                    stream.result()
                counter.check_silence()
        tell("pulling", load.messages, load.messages)
        return _throughput(load, counter.ended - counter.began)


def measure_latency(pubsub: PubSub, load: Load, tell: Tell, *, rate: int) -> Figures:
    """Measures the milliseconds from the time at which a message was to be published to its callback."""
    warm_up = int(rate * _WARM_UP_S)
    total = warm_up + load.messages
    with _topic(pubsub, load) as topic, _subscription(pubsub, topic) as subscription:
        taken: list[float] = []
        counter = _Counter(total)

        def take(message: Message) -> None:
            taken.append((time.time_ns() - _STAMP.unpack_from(message.data)[0]) / 1e6)
            message.ack()
            counter.count()

        with subscription.pull(take):
            started = time.time_ns()
            for number in range(total):
                due = started + number * 1_000_000_000 // rate
                while (left := due - time.time_ns()) > 0:
                    time.sleep(left / 1e9)
                topic.publish(load.body(due), ordering_key=load.key(number))
                if number % rate == 0:
                    tell("measuring", number, total)
            topic.flush(_SILENCE_S)
            while not counter.full.wait(0.1):
                counter.check_silence()
        counted = sorted(taken[warm_up:])
        return {
            "messages": len(counted),
            "rate": rate,
            "p50_ms": _percentile(counted, 0.5),
            "p99_ms": _percentile(counted, 0.99),
            "max_ms": round(counted[-1], 2),
        }


def _percentile(values: list[float], share: float) -> float:
    return round(values[min(len(values) - 1, int(share * len(values)))], 2)


def _throughput(load: Load, seconds: float) -> Figures:
    rate = load.messages / max(seconds, 1e-9)
    return {
        "messages": load.messages,
        "seconds": round(seconds, 3),
        "messages_per_second": round(rate),
        "megabytes_per_second": round(rate * load.size / 1e6, 1),
    }


class _Counter:
    """Counts deliveries; callbacks run on many threads."""

    def __init__(self, wanted: int) -> None:
        self.seen = 0
        self.began = self.ended = self._seen_at = time.perf_counter()
        self.full = threading.Event()
        self._wanted = wanted
        self._checked = 0
        self._lock = threading.Lock()

    def count(self) -> None:
        """Counts one more acked message."""
        with self._lock:
            self.seen += 1
            if self.seen == 1:
                self.began = time.perf_counter()
            if self.seen == self._wanted:
                self.ended = time.perf_counter()
                self.full.set()

    def check_silence(self) -> None:
        """Raises `DeadlineExceeded` if nothing was counted for long."""
        now = time.perf_counter()
        if self.seen != self._checked:
            self._checked, self._seen_at = self.seen, now
        elif now - self._seen_at > _SILENCE_S:
            raise DeadlineExceeded(
                f"nothing was delivered for {_SILENCE_S:g} s, after {self.seen:,} of {self._wanted:,} messages"
            )


@contextlib.contextmanager
def _topic(pubsub: PubSub, load: Load) -> Iterator[Topic]:
    name = f"kafka-pubsub-bench-{secrets.token_hex(4)}"
    try:
        topic = pubsub.create_topic(name, partitions=load.partitions, message_ordering=True)
    except (FailedPrecondition, PermissionDenied) as error:
        raise type(error)(
            "a measurement makes a topic and a subscription of its own and deletes them, and this client may not make "
            "topics: run it as one that may, and without KAFKA_PUBSUB_CREATE=false"
        ) from error
    try:
        yield topic
    finally:
        with contextlib.suppress(PubSubError):
            topic.delete()


@contextlib.contextmanager
def _subscription(pubsub: PubSub, topic: Topic) -> Iterator[Subscription]:
    subscription = pubsub.create_subscription(topic.name, topic=topic.name, message_ordering=True)
    try:
        yield subscription
    finally:
        with contextlib.suppress(PubSubError):
            pubsub.delete_subscription(topic.name)
