"""A publisher that keeps to its timetable, in a process of its own: `python -m tests.benchmarks.open_loop '{...}'`.

Message i is meant to leave at start + i / rate, and carries that instant. A publisher that falls behind, because
something made the publisher wait, sends late but stamps the planned time: so a stall is counted for every message
that the stall delayed, not once (coordinated omission). The last line on standard output says how late it was itself.
A delayed message is due so long after the instant at which it was meant to leave.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

from confluent_kafka import Producer

from kafka_pubsub.config import Batching
from tests.benchmarks.cluster import PRODUCER
from tests.benchmarks.data import Payloads, delays_ms, head, key_name, keys
from tests.benchmarks.figures import percentile

__all__ = ["due_ms", "main"]

Send = Callable[[str, bytes], None]
# Long enough that the loop is running before its first message is due.
START_IN_NS = 200_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _with_a_hot_key(numbers: Iterable[int], share: float) -> Iterator[int]:
    """The same keys, but so large a share of the messages has key 0."""
    chance = random.Random(3).random
    return (0 if chance() < share else number for number in numbers)


def _keep_time(send: Send, rate: int, total: int, distinct: int, start: int, hot: float = 0.0) -> list[float]:
    payloads = Payloads()
    interval = 1_000_000_000 // rate
    late: list[float] = []
    numbers = keys(total, distinct)
    for place, number in enumerate(_with_a_hot_key(numbers, hot) if hot else numbers):
        due = start + place * interval
        while (ahead := due - time.time_ns()) > 0:
            time.sleep(ahead / 1e9)
        send(key_name(number), payloads.make(number, place, due))
        late.append((time.time_ns() - due) / 1e6)
    return late


def _raw(bootstrap: str, topic: str, run: Callable[[Send], list[float]]) -> list[float]:
    # The same wait for a batch as ours by default; librdkafka's own is 5 ms.
    linger_ms = Batching().max_latency * 1000
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER, "linger.ms": linger_ms})

    def send(key: str, value: bytes) -> None:
        producer.produce(topic, value, key, on_delivery=lambda *_: None)
        producer.poll(0)

    late = run(send)
    producer.flush(60)
    return late


def _ours(
    bootstrap: str, topic: str, run: Callable[[Send], list[float]], priority: int | None = None
) -> list[float]:
    from kafka_pubsub import PubSub

    with PubSub(bootstrap) as pubsub:
        handle = pubsub.topic(topic)

        def send(key: str, value: bytes) -> None:
            handle.publish(value, ordering_key=key, priority=priority)

        return run(send)


def due_ms(intended_ns: int, delay: int) -> int:
    """When a message is due, in milliseconds since the epoch."""
    return intended_ns // 1_000_000 + delay


def _delayed(
    bootstrap: str, topic: str, run: Callable[[Send], list[float]], total: int, longest: int
) -> list[float]:
    from kafka_pubsub import PubSub

    with PubSub(bootstrap) as pubsub:
        handle, delays = pubsub.topic(topic), delays_ms(total, longest)

        def send(key: str, value: bytes) -> None:
            due = due_ms(head(value).intended_ns, next(delays))
            handle.publish(value, ordering_key=key, deliver_at=_EPOCH + timedelta(milliseconds=due))

        return run(send)


def main() -> None:
    """Entry point of the publisher's process; `longest_ms` delays the messages, `priority` names their lane."""
    wanted = json.loads(sys.argv[1])
    publisher = _ours if wanted["client"] == "ours" else _raw
    if "priority" in wanted:
        publisher = partial(_ours, priority=wanted["priority"])
    if "longest_ms" in wanted:
        publisher = partial(_delayed, total=wanted["total"], longest=wanted["longest_ms"])

    start = 0

    def run(send: Send) -> list[float]:
        nonlocal start
        start = time.time_ns() + START_IN_NS
        size = (wanted["rate"], wanted["total"], wanted["distinct"])
        return _keep_time(send, *size, start, wanted.get("hot", 0.0))

    late = sorted(publisher(wanted["bootstrap"], wanted["topic"], run))
    report = {"late_p99_ms": percentile(late, 99), "late_max_ms": late[-1], "start_ns": start}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
