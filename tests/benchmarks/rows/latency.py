"""From the instant a message was meant to be sent until its callback begins, at a fixed rate.

The row's process consumes; the publisher runs in a second one. One machine, one clock (`time.time_ns`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

from tests.benchmarks.cluster import CONSUMER, create_plainly, create_with_us
from tests.benchmarks.data import head
from tests.benchmarks.figures import percentile
from tests.benchmarks.row import Measured

__all__ = ["ours", "raw"]

# Messages that may still be under way when the publisher has ended.
REST_S = 30.0


class _Arrivals:
    """Collects latencies; the warm-up's are left out. `place` in a value counts all messages here."""

    def __init__(self, total: int, warmup: int) -> None:
        self.done = threading.Event()
        self.latencies: list[float] = []
        self._wanted = total - warmup
        self._warmup = warmup

    def one(self, value: bytes) -> None:
        now = time.time_ns()
        _, place, intended = head(value)
        if place < self._warmup:
            return
        self.latencies.append((now - intended) / 1e6)
        if len(self.latencies) == self._wanted:
            self.done.set()

    def report(self, publisher: subprocess.Popen[str]) -> Measured:
        output, _ = publisher.communicate(timeout=REST_S)
        if not self.done.is_set():
            raise RuntimeError(f"{len(self.latencies)} of {self._wanted} messages arrived")
        ordered = sorted(self.latencies)
        late = json.loads(output.strip().splitlines()[-1])
        return {
            "p50_ms": percentile(ordered, 50),
            "p99_ms": percentile(ordered, 99),
            "max_ms": ordered[-1],
            "publisher_late_p99_ms": late["late_p99_ms"],
            "note": f"the publisher itself: p99 {late['late_p99_ms']:.1f} ms after its timetable",
        }


def _own_topic(group: str) -> str:
    # A topic for each run: messages of a run are not the next run's backlog.
    return f"{group}-own"


def _publisher(
    client: str, bootstrap: str, topic: str, rate: int, total: int, distinct: int
) -> subprocess.Popen[str]:
    wanted = {"client": client, "bootstrap": bootstrap, "topic": topic}
    numbers = {"rate": rate, "total": total, "distinct": distinct}
    command = [sys.executable, "-m", "tests.benchmarks.open_loop", json.dumps({**wanted, **numbers})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ours(bootstrap: str, group: str, rate: int, warmup_seconds: int, seconds: int, distinct: int) -> Measured:
    """The client under test on both sides, at its defaults."""
    from kafka_pubsub import Message, PubSub

    topic = _own_topic(group)
    create_with_us(bootstrap, topic, [topic])
    total = rate * (warmup_seconds + seconds)
    arrivals = _Arrivals(total, rate * warmup_seconds)

    def handle(message: Message) -> None:
        arrivals.one(message.data)
        message.ack()

    with PubSub(bootstrap) as pubsub, pubsub.subscription(topic).pull(handle):
        publisher = _publisher("ours", bootstrap, topic, rate, total, distinct)
        arrivals.done.wait(warmup_seconds + seconds + REST_S)
        return arrivals.report(publisher)


def raw(bootstrap: str, group: str, rate: int, warmup_seconds: int, seconds: int, distinct: int) -> Measured:
    """A plain consumer and producer, read in the way that was found to wait least."""
    from confluent_kafka import Consumer

    topic = _own_topic(group)
    create_plainly(bootstrap, topic)
    total = rate * (warmup_seconds + seconds)
    arrivals = _Arrivals(total, rate * warmup_seconds)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, **CONSUMER})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    publisher = _publisher("raw", bootstrap, topic, rate, total, distinct)
    deadline = time.monotonic() + warmup_seconds + seconds + REST_S
    while not arrivals.done.is_set() and time.monotonic() < deadline:
        for message in consumer.consume(500, 0) or consumer.consume(1, 0.05):
            arrivals.one(message.value() or b"")
    consumer.close()
    return arrivals.report(publisher)
