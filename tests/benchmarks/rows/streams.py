"""How a stream of ours begins, goes on and ends: its closes, and callbacks of 5 ms from the first to the last."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
import uuid

from kafka_pubsub import Message, PubSub, RetryPolicy
from tests.benchmarks.data import Payloads, key_name
from tests.benchmarks.row import Measured

__all__ = ["bare", "callbacks", "ends"]

_PARTITIONS = 8
#: Seconds that a stream is given for its messages.
_PATIENCE_S = 60.0
#: The backoff in seconds of a nacked message: longer than any run.
_LONG_S = 600.0


def ends(bootstrap: str, closes: int, messages: int, distinct: int, keep: bool) -> Measured:
    """The seconds of `Stream.close()` after the last callback; with `keep` a single key of the topic is nacked."""
    name, payload = f"ends-{uuid.uuid4().hex[:8]}", Payloads().make(0, 0)
    kept = key_name(0) if keep else None
    seconds: list[float] = []
    with PubSub(bootstrap) as pubsub:
        topic = pubsub.create_topic(name, partitions=_PARTITIONS)
        long = RetryPolicy(min_backoff=_LONG_S, max_backoff=_LONG_S)
        subscription = pubsub.create_subscription(name, name, message_ordering=True, retry=long)
        for _ in range(closes):
            done = _Count(messages - (messages // distinct if keep else 0))

            def handle(message: Message, done: _Count = done) -> None:
                if message.ordering_key == kept:
                    message.nack()
                else:
                    message.ack()
                    done.one()

            stream = subscription.pull(handle)
            for number in range(messages):
                topic.publish(payload, ordering_key=key_name(number % distinct))
            done.wait()
            began = time.perf_counter()
            stream.close()
            seconds.append(time.perf_counter() - began)
    return {"median_s": statistics.median(seconds), "longest_s": max(seconds)}


def callbacks(
    bootstrap: str, topic: str, group: str, workers: int, messages: int, handler: float
) -> Measured:
    """Callbacks that sleep, from the first one's start until the stream is closed; and when none began for longest."""
    begun: list[float] = []
    done = _Count(messages)

    def handle(message: Message) -> None:
        begun.append(time.perf_counter())
        time.sleep(handler)
        message.ack()
        done.one()

    with PubSub(bootstrap) as pubsub:
        stream = pubsub.subscription(group).pull(handle, max_workers=workers)
        done.wait()
        stream.close()
        ended = time.perf_counter()
    return {"rate": messages / (ended - begun[0]), "pause_s": _longest_pause(begun)}


def bare(workers: int, messages: int, handler: float) -> Measured:
    """So many threads that sleep as often, and nothing else."""
    begun: list[float] = []

    def work() -> None:
        for _ in range(messages // workers):
            begun.append(time.perf_counter())
            time.sleep(handler)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"rate": len(begun) / (time.perf_counter() - begun[0]), "pause_s": _longest_pause(begun)}


def _longest_pause(begun: list[float]) -> float:
    begun.sort()
    return max(later - earlier for earlier, later in itertools.pairwise(begun))


class _Count:
    """Counts callbacks of any thread up to a number."""

    def __init__(self, number: int) -> None:
        self._left, self._done, self._lock = number, threading.Event(), threading.Lock()

    def one(self) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self._done.set()

    def wait(self) -> None:
        if not self._done.wait(_PATIENCE_S):
            raise RuntimeError(f"{self._left} messages were not acknowledged within {_PATIENCE_S:.0f} s")
