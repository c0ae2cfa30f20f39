"""A million messages wait in the retry topic: their cost in memory, and how soon a restart delivers.

Every third key's first message is nacked for an hour, so the rest of that key is relocated behind it. (Were most of
them nacked, the subscription would see an outage and slow to a probe.) Messages of fresh keys, published last,
show that everything before them was read. A second process then takes the subscription over: it has to learn who is
parked before it may deliver the next fresh message.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time

from confluent_kafka import Consumer, TopicPartition

from kafka_pubsub import Message, PubSub
from tests.benchmarks.cluster import PARTITIONS
from tests.benchmarks.data import head
from tests.benchmarks.memory import megabytes, peak_megabytes
from tests.benchmarks.row import SAID, Measured, say

__all__ = ["park", "parked", "resume"]

# Seconds for which a key's first message is nacked: longer than any run.
HOLD_S = 3600.0
# Keys that nobody parks. So many that every partition has such a key.
FRESH = 64
CLOSE_TIMEOUT_S = 120.0
# Messages that a process may keep in the main partitions: the contents of its buffers.
IN_MEMORY = 50_000
# Seconds between two reports of progress.
SAY_S = 5.0
# Seconds after the first delivery in which memory may still grow.
SETTLE_S = 5.0


def parked(bootstrap: str, topic: str, group: str, messages: int, patience: float) -> Measured:
    """Parks a third of `messages` in a process, and takes them over in another."""
    wanted: dict[str, object] = {"bootstrap": bootstrap, "topic": topic, "group": group, "patience": patience}
    first = _process("park", wanted, patience)
    waiting = _waiting(bootstrap, topic, group)
    if waiting < messages - IN_MEMORY:
        raise RuntimeError(f"{waiting} of {messages} messages lie in the retry topic")
    started = time.time()
    second = _process("resume", {**wanted, "started": started}, patience)
    return {
        "growth_mb": max(first["growth_mb"], second["growth_mb"]),
        "first_delivery_s": second["first_delivery_s"],
        "note": f"{waiting:,} records in the retry topic; {first['growth_mb']:.0f} MB while they were parked, "
        f"{second['growth_mb']:.0f} MB after the restart",
    }


def _process(name: str, wanted: dict[str, object], patience: float) -> dict[str, float]:
    specification = json.dumps({"call": f"{__name__}:{name}", "parameters": wanted})
    command = [sys.executable, "-m", "tests.benchmarks.row", specification]
    last = ""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        end = threading.Timer(2 * patience, process.kill)
        end.start()
        for line in process.stdout or ():
            last = line
            if line.startswith(SAID):
                say(f"{name}: {line.removeprefix(SAID).strip()}")
        process.wait()
        end.cancel()
        errors.seek(0)
        told = errors.read().strip()[-400:]
    report = {} if last.startswith(SAID) else json.loads(last or "{}")
    if "metrics" not in report:
        raise RuntimeError(f"{name}: {report.get('error') or told or f'ended with {process.returncode}'}")
    metrics: dict[str, float] = report["metrics"]
    return metrics


def _waiting(bootstrap: str, topic: str, group: str) -> int:
    """How many records of the retry topic lie above the committed positions; markers count, a few in a thousand."""
    retry = f"{topic}.sub.{group}.retry"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(retry, number) for number in range(PARTITIONS)]
        stored = [max(0, place.offset) for place in consumer.committed(places, timeout=30)]
        ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        return sum(ends) - sum(stored)
    finally:
        consumer.close()


def _publish_fresh(pubsub: PubSub, topic: str, prefix: str) -> set[str]:
    keys = {f"{prefix}-{number}" for number in range(FRESH)}
    futures = [pubsub.topic(topic).publish(b"fresh", ordering_key=key) for key in keys]
    for future in futures:
        future.result(timeout=60)
    return keys


def park(bootstrap: str, topic: str, group: str, patience: float) -> Measured:
    """Nacks every third key, until the fresh messages, which come last, were all delivered."""
    through = threading.Event()
    fresh: set[str] = set()
    acked = 0

    def handle(message: Message) -> None:
        nonlocal acked
        key = message.ordering_key or ""
        if not key.startswith("fresh"):
            if head(message.data).key % 3 == 0:
                message.nack(delay=HOLD_S)
            else:
                message.ack()
                acked += 1
            return
        message.ack()
        fresh.discard(key)
        if not fresh:
            through.set()

    with PubSub(bootstrap) as pubsub:
        fresh |= _publish_fresh(pubsub, topic, "fresh")
        before = megabytes()
        stream = pubsub.subscription(group).pull(handle)
        until = time.monotonic() + patience
        while not through.wait(SAY_S):
            say(
                f"about {acked:,} of the others' messages acked; {megabytes() - before:.0f} MB more than before"
            )
            if time.monotonic() > until:
                raise RuntimeError(f"{len(fresh)} keys behind the parked ones waited for {patience:.0f} s")
        time.sleep(SETTLE_S)
        growth = peak_megabytes() - before
        stream.close(timeout=CLOSE_TIMEOUT_S)
    return {"growth_mb": growth}


def resume(bootstrap: str, topic: str, group: str, started: float, patience: float) -> Measured:
    """Takes over; `started` is when this process was."""
    first = threading.Event()
    at = 0.0

    def handle(message: Message) -> None:
        nonlocal at
        at = at or time.time()
        message.ack()
        first.set()

    with PubSub(bootstrap) as pubsub:
        before = megabytes()
        stream = pubsub.subscription(group).pull(handle)
        _publish_fresh(pubsub, topic, "later")
        if not first.wait(patience):
            raise RuntimeError(f"nothing was delivered for {patience:.0f} s")
        time.sleep(SETTLE_S)
        growth = peak_megabytes() - before
        stream.close(timeout=CLOSE_TIMEOUT_S)
    return {"growth_mb": growth, "first_delivery_s": at - started}
