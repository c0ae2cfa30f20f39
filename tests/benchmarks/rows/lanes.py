"""Lanes beside the naive ways: a single consumer of several topics, and a consumer for each.

In `mixed` a handler of fixed length limits the work of a second, and two publishers in processes of their own
send low and high messages at fixed rates. A message waits from the instant it was meant to be sent until its callback
begins.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer

from kafka_pubsub import Message, PubSub
from tests.benchmarks.cluster import CONSUMER, PARTITIONS, create_plainly
from tests.benchmarks.data import head
from tests.benchmarks.figures import percentile
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured, say

__all__ = ["alternating", "mixed", "pull"]

LOW, HIGH, PRIORITIES = 0, 9, 10
#: Seconds for publishers to end.
_REST_S = 60.0
_BODY = bytes(1024)

#: A priority, when the message was meant to be sent, and when its callback began, in nanoseconds.
Seen = tuple[int, int, int]


def mixed(
    bootstrap: str,
    group: str,
    way: str,
    high: int,
    low: int,
    warmup_seconds: int,
    seconds: int,
    workers: int,
    handler: float,
) -> Measured:
    """`high` and `low` messages a second.

    `way`: ours, ordered (ours, with message ordering), one (consumer of both topics) or each (a consumer for each).
    """
    seen: list[Seen] = []

    def handle(priority: int, body: bytes) -> None:
        seen.append((priority, head(body)[2], time.time_ns()))
        time.sleep(handler)

    rates = {priority: rate for priority, rate in ((HIGH, high), (LOW, low)) if rate}
    laned = way in ("ours", "ordered")
    opened = _ours if laned else _naively
    with opened(bootstrap, f"{group}-{way}", way, list(rates), workers, handle) as topics:
        say("publishing")
        total = warmup_seconds + seconds
        publishers = [
            _publisher(bootstrap, topics[each], rate, rate * total, each if laned else None)
            for each, rate in rates.items()
        ]
        said = [
            json.loads(each.communicate(timeout=total + _REST_S)[0].splitlines()[-1]) for each in publishers
        ]
    start = max(each["start_ns"] for each in said) + warmup_seconds * 1_000_000_000
    end = start + seconds * 1_000_000_000
    waits = {
        priority: sorted(
            (at - sent) / 1e6 for some, sent, at in seen if some == priority and start <= sent < end
        )
        for priority in (HIGH, LOW)
    }
    done = {
        priority: sum(some == priority and start <= at < end for some, _, at in seen) / seconds
        for priority in (HIGH, LOW)
    }
    measured: Measured = {"high_rate": done[HIGH], "low_rate": done[LOW]}
    if waits[HIGH]:
        measured |= {"high_p50_ms": percentile(waits[HIGH], 50), "high_p99_ms": percentile(waits[HIGH], 99)}
    if waits[LOW]:
        measured["low_max_ms"] = waits[LOW][-1]
    return measured


@contextmanager
def _ours(
    bootstrap: str,
    topic: str,
    way: str,
    priorities: Sequence[int],
    workers: int,
    handle: Callable[[int, bytes], None],
) -> Iterator[dict[int, str]]:
    def callback(message: Message) -> None:
        if len(message.data) > 1:
            handle(message.priority, message.data)
        message.ack()

    with PubSub(bootstrap) as ps:
        made = ps.create_topic(topic, partitions=PARTITIONS, priorities=PRIORITIES)
        subscription = ps.create_subscription(topic, topic=topic, message_ordering=way == "ordered")
        for priority in priorities:  # so that the lanes are there
            made.publish(b"0", priority=priority).result(_REST_S)
        with subscription.pull(callback, max_workers=workers):
            yield dict.fromkeys(priorities, topic)


@contextmanager
def _naively(
    bootstrap: str,
    topic: str,
    way: str,
    priorities: Sequence[int],
    workers: int,
    handle: Callable[[int, bytes], None],
) -> Iterator[dict[int, str]]:
    topics = {priority: f"{topic}-{priority}" for priority in priorities}
    for name in topics.values():
        create_plainly(bootstrap, name)
    ending = threading.Event()
    shares = [list(topics)] if way == "one" else [[each] for each in topics]
    threads = [
        threading.Thread(
            target=_consume, args=(bootstrap, topic, topics, share, workers // len(shares), handle, ending)
        )
        for share in shares
    ]
    for thread in threads:
        thread.start()
    try:
        time.sleep(5)  # until they have their partitions
        yield topics
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def _consume(
    bootstrap: str,
    group: str,
    topics: dict[int, str],
    priorities: Sequence[int],
    workers: int,
    handle: Callable[[int, bytes], None],
    ending: threading.Event,
) -> None:
    """Hands what a single consumer reads to threads."""
    by_topic = {topics[each]: each for each in priorities}
    waiting: queue.Queue[tuple[int, bytes] | None] = queue.Queue(workers)

    def work() -> None:
        while (given := waiting.get()) is not None:
            handle(*given)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    name = f"{group}-{'-'.join(map(str, priorities))}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, **CONSUMER})
    consumer.subscribe(list(by_topic))
    while not ending.is_set():
        for record in consumer.consume(100, 0.05):
            if record.error() is None and not ending.is_set():
                waiting.put((by_topic[record.topic() or ""], record.value() or b""))
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    consumer.close()


def _publisher(
    bootstrap: str, topic: str, rate: int, total: int, priority: int | None
) -> subprocess.Popen[str]:
    client = "raw" if priority is None else "ours"
    wanted = {"client": client, "bootstrap": bootstrap, "topic": topic, "rate": rate, "total": total}
    more = {"distinct": 1000} if priority is None else {"distinct": 1000, "priority": priority}
    command = [sys.executable, "-m", "tests.benchmarks.open_loop", json.dumps({**wanted, **more})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def pull(bootstrap: str, group: str, lanes: int, flowing: int, warmup: int, measured: int) -> Measured:
    """A callback that only acknowledges; `flowing` of so many lanes have all the messages."""
    meter = Meter(warmup, measured)

    def handle(message: Message) -> None:
        message.ack()
        meter.one()

    topic = f"{group}-{lanes}-{flowing}"
    with PubSub(bootstrap) as ps:
        made = ps.create_topic(topic, partitions=PARTITIONS, priorities=lanes)
        subscription = ps.create_subscription(topic, topic=topic)
        for priority in range(lanes):
            made.publish(_BODY, priority=priority).result(_REST_S)
        # Lanes that flow begin with the default priority.
        used = [(each + (lanes - 1) // 2) % lanes for each in range(flowing)]
        made.publish_many(
            {
                "data": _BODY,
                "ordering_key": f"key-{number % 1000}-{number % flowing}",
                "priority": used[number % flowing],
            }
            for number in range(warmup + measured)
        ).result(_REST_S)
        stream = subscription.pull(handle)
        rate = meter.wait(300)
        stream.close(timeout=_REST_S)
    return {"rate": rate}


def alternating(bootstrap: str, group: str, messages: int) -> Measured:
    """A single publisher that changes the class with each message, in a single partition."""
    topic = f"{group}-classes"
    with PubSub(bootstrap) as ps:
        made = ps.create_topic(topic, partitions=1, transient=True)
        for durable in (True, False):
            made.publish(b"0", durable=durable).result(_REST_S)
        began = time.perf_counter()
        sent = [made.publish(_BODY, durable=bool(number % 2)) for number in range(messages)]
        for future in sent:
            future.result(_REST_S)
        return {"rate": messages / (time.perf_counter() - began)}
