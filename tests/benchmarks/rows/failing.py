"""A key fails for minutes while it is a fifth of the traffic: how much the others lose, and the cost.

One process and a run: first everybody is handled, which is the yardstick, then the key begins to fail. The traffic
comes in an open loop from a process of its own. Both ack maps are looked at as the broker has them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafka_pubsub import Message, PubSub
from tests.benchmarks.cluster import PARTITIONS, create_with_us
from tests.benchmarks.data import head, key_name
from tests.benchmarks.memory import megabytes
from tests.benchmarks.row import Measured, say

__all__ = ["failing"]

# How long everything runs before the measuring begins.
WARMUP_S = 5.0
# Seconds between two looks at memory and maps.
LOOK_S = 0.5
CLOSE_TIMEOUT_S = 60.0
# Characters of offset metadata that a broker stores: a map's budget.
BUDGET = 4095


class _Traffic:
    """The callback, and the messages that it has seen."""

    def __init__(self) -> None:
        self.failing = False
        self.others = 0
        self.failures = 0
        self.disordered = 0
        self._key = key_name(0)
        self._last: dict[str | None, int] = {}
        # At 20,000 messages a second a lock costs nothing, and without a lock threads would lose counts.
        self._lock = threading.Lock()

    def handle(self, message: Message) -> None:
        key = message.ordering_key
        if key == self._key and self.failing:
            self.failures += 1
            message.nack()
            return
        place = head(message.data).place
        with self._lock:
            self.disordered += place <= self._last.get(key, -1)
            self._last[key] = place
            self.others += key != self._key
        message.ack()


class _Maps:
    """The fullest that the broker has seen of each map, as shares of the room for maps."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted"}
        self._consumer = Consumer(settings)
        self._places = [[TopicPartition(topic, number) for number in range(PARTITIONS)] for topic in topics]
        self.fullest = [0.0 for _ in topics]
        #: Looks that the broker didn't answer in time.
        self.missed = 0

    def look(self) -> None:
        for at, places in enumerate(self._places):
            try:
                stored = self._consumer.committed(places, timeout=10)
            except KafkaException:
                self.missed += (
                    1  # ten minutes of measuring aren't thrown away for a single failed look of a thousand
                )
                continue
            longest = max(len(each.metadata or "") for each in stored)
            self.fullest[at] = max(self.fullest[at], longest / BUDGET)

    def close(self) -> None:
        self._consumer.close()


def failing(
    bootstrap: str, group: str, rate: int, share: float, distinct: int, before: float, seconds: float
) -> Measured:
    """So many messages a second, a share of them of the key that fails after `before` seconds, for `seconds`."""
    topic = f"{group}-own"
    create_with_us(bootstrap, topic, [topic])
    wanted = {"client": "raw", "bootstrap": bootstrap, "topic": topic, "rate": rate, "distinct": distinct}
    total = round(rate * (WARMUP_S + before + seconds + 10))
    command = [sys.executable, "-m", "tests.benchmarks.open_loop"]
    traffic = _Traffic()
    with PubSub(bootstrap) as pubsub:
        maps = _Maps(bootstrap, topic, [topic, f"{topic}.sub.{topic}.retry"])
        stream = pubsub.subscription(topic).pull(traffic.handle)
        publisher = subprocess.Popen(
            [*command, json.dumps({**wanted, "total": total, "hot": share})], stdout=subprocess.DEVNULL
        )
        try:
            time.sleep(WARMUP_S)
            free, _ = _watch(traffic, maps, before)
            at_first = megabytes()
            traffic.failing = True
            slowed, peak = _watch(traffic, maps, seconds)
        finally:
            publisher.kill()
            publisher.wait()
        maps.close()
        stream.close(timeout=CLOSE_TIMEOUT_S)
    return {
        "others_rate": slowed,
        "kept": slowed / free,
        "growth_mb": max(0.0, peak - at_first),
        "main_map": maps.fullest[0],
        "retry_map": maps.fullest[1],
        "disordered": traffic.disordered,
        "note": f"others before: {free:,.0f} msg/s; {traffic.failures:,} failures; {maps.missed} looks at maps missed",
    }


def _watch(traffic: _Traffic, maps: _Maps, seconds: float) -> tuple[float, float]:
    """The others' messages per second, and the highest memory, in so many seconds."""
    started, count, peak = time.perf_counter(), traffic.others, 0.0
    while (past := time.perf_counter() - started) < seconds:
        time.sleep(min(LOOK_S, seconds - past))
        maps.look()
        peak = max(peak, megabytes())
        rate = (traffic.others - count) / (time.perf_counter() - started)
        say(f"{past:.0f} of {seconds:.0f} s, {rate:,.0f} msg/s of the others, {peak:.0f} MB")
    return (traffic.others - count) / (time.perf_counter() - started), peak
