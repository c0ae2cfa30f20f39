"""Messages to three causal topics each: their rate, the time until they have a place, the gain of disjoint groups.

Sequencers and publishers run in processes of their own. A message counts when its future has resolved: then at least
one of its topics has the message.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Producer

from kafka_pubsub import PubSub
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.multicast.layout import GROUP
from tests.benchmarks.cluster import PRODUCER, create_plainly
from tests.benchmarks.figures import percentile
from tests.benchmarks.multicaster import BODY, PATIENCE, WARMUP
from tests.benchmarks.row import Measured, say

__all__ = ["bare", "in_turn", "latency", "new_topics", "throughput"]

#: Topics of a message, and messages of a bare transaction.
TOPICS, AT_ONCE = 3, 500


def throughput(bootstrap: str, topic: str, messages: int, groups: int, sequencers: int) -> Measured:
    """Publishes to `groups` disjoint groups of three topics, by a publisher each."""
    names = _names(f"{topic}-{groups}-{sequencers}", groups)
    share = messages // groups
    with _causal(bootstrap, names, sequencers):
        plans = [{"topics": mine, "warmup": WARMUP // groups, "messages": share} for mine in names]
        started, _ = _publish(bootstrap, plans)
        seconds = time.perf_counter() - started
    return {"rate": share * groups / seconds}


def in_turn(bootstrap: str, topic: str, seconds: int, groups: int, sequencers: int) -> Measured:
    """Publishes to disjoint groups by a publisher each, which waits for each message's place before the next."""
    names = _names(f"{topic}-{groups}-in-turn", groups)
    with _causal(bootstrap, names, sequencers):
        plans = [{"topics": mine, "warmup": WARMUP // groups, "seconds": seconds} for mine in names]
        _, answers = _publish(bootstrap, plans)
    return {"rate": sum(each["count"] / each["seconds"] for each in answers)}


def latency(bootstrap: str, topic: str, rate: int, seconds: int, sequencers: int, load: int) -> Measured:
    """Publishes at a fixed rate; from when a message was meant to be published until its future has resolved.

    `load`: messages that another publisher sends to three other topics a second meanwhile.
    """
    names = _names(f"{topic}-{load}", 2 if load else 1)
    with _causal(bootstrap, names, sequencers):
        rates = [rate, load] if load else [rate]
        plans = [
            {"topics": mine, "warmup": WARMUP // len(names), "rate": each, "seconds": seconds}
            for mine, each in zip(names, rates, strict=True)
        ]
        _, answers = _publish(bootstrap, plans)
    late = sorted(answers[0]["late"])
    return {
        "p50_ms": percentile(late, 50) * 1e3,
        "p99_ms": percentile(late, 99) * 1e3,
        "max_ms": late[-1] * 1e3,
    }


def new_topics(bootstrap: str, topic: str, topics: int, seconds: int, every: int) -> Measured:
    """Publishes messages in turn, each when the message before has its place, while topics are made.

    `topics`: how many causal topics there are. `every`: seconds between two new ones; 0: none is made.
    """
    names = [f"{topic}-{number}" for number in range(topics)]
    ended = threading.Event()
    with _causal(bootstrap, [names], 1), PubSub(bootstrap) as pubsub, ThreadPoolExecutor(1) as maker:
        _places(pubsub, names[:2], 3)
        making = maker.submit(_make_topics, bootstrap, topic, every, ended)
        took = _places(pubsub, names[:2], seconds)
        ended.set()
        made = making.result(PATIENCE)
    return {
        "p50_ms": percentile(took, 50) * 1e3,
        "p99_ms": percentile(took, 99) * 1e3,
        "max_ms": took[-1] * 1e3,
        "note": f"{len(took)} messages, {made} topics made",
    }


def _places(pubsub: PubSub, topics: Sequence[str], seconds: float) -> list[float]:
    """Publishes for so long; returns how long each message took, sorted."""
    took, end = [], time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        pubsub.publish_multi(topics, BODY).result(PATIENCE)
        took.append(time.monotonic() - began)
    return sorted(took)


def _make_topics(bootstrap: str, topic: str, every: int, ended: threading.Event) -> int:
    """Makes a topic every so many seconds; returns how many."""
    made = 0
    with PubSub(bootstrap) as pubsub:
        while not ended.wait(every or None):
            pubsub.create_topic(f"{topic}-new-{made}", causal=True)
            made += 1
    return made


def bare(bootstrap: str, topic: str, messages: int) -> Measured:
    """Transactions that write each message to three topics: atomic, without a common order."""
    names = [f"{topic}-bare-{time.time_ns()}-{n}" for n in range(TOPICS)]
    for name in names:
        create_plainly(bootstrap, name)
    producer = Producer(
        {
            **PRODUCER,
            "bootstrap.servers": bootstrap,
            "transactional.id": topic,
            "linger.ms": 1,
            "retry.backoff.ms": 1,
        }
    )
    producer.init_transactions()
    _write(producer, names, WARMUP)
    started = time.perf_counter()
    _write(producer, names, messages)
    return {"rate": messages / (time.perf_counter() - started)}


def _write(producer: Producer, names: Sequence[str], messages: int) -> None:
    for _ in range(0, messages, AT_ONCE):
        producer.begin_transaction()
        for _ in range(AT_ONCE):
            for name in names:
                producer.produce(name, BODY, partition=0)
        producer.commit_transaction()


def _names(prefix: str, groups: int) -> list[list[str]]:
    return [[f"{prefix}-{group}-{n}" for n in range(TOPICS)] for group in range(groups)]


@contextlib.contextmanager
def _causal(bootstrap: str, groups: Sequence[Sequence[str]], sequencers: int) -> Iterator[None]:
    """Makes causal topics, and runs sequencers until they share them."""
    with PubSub(bootstrap) as pubsub:
        for name in (name for group in groups for name in group):
            pubsub.create_topic(name, causal=True, exist_ok=True)
    command = [sys.executable, "-m", "kafka_pubsub", "--bootstrap", bootstrap, "service", "sequencer"]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(sequencers)]
    backend = KafkaBackend(bootstrap)
    try:
        end = time.monotonic() + PATIENCE
        while backend.admin.group_members(GROUP) < sequencers:
            if time.monotonic() > end:
                raise RuntimeError(f"not {sequencers} sequencers after {PATIENCE:.0f} s")
            time.sleep(0.1)
        yield
    finally:
        backend.close()
        for each in running:
            each.terminate()
        for each in running:
            each.wait(PATIENCE)


def _publish(
    bootstrap: str, plans: Sequence[Mapping[str, object]]
) -> tuple[float, Sequence[Mapping[str, Any]]]:
    """Runs publishers with these plans side by side; returns when they began, and their answers."""
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.benchmarks.multicaster",
                json.dumps({"bootstrap": bootstrap, **plan}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for plan in plans
    ]
    try:
        for each in running:
            assert each.stdout is not None
            if each.stdout.readline() != "ready\n":
                raise RuntimeError("a publisher hasn't begun")
        say("publishing")
        began = time.perf_counter()
        for each in running:
            assert each.stdin is not None
            print("go", file=each.stdin, flush=True)
        return began, [json.loads(each.communicate()[0]) for each in running]
    finally:
        for each in running:
            each.kill()
