"""Messages to three causal topics each: their rate, the time until one has its place, what disjoint groups gain.

Sequencers run in processes of their own. A message counts when its future has resolved: then it was released at one of
its topics at least.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from functools import partial

from confluent_kafka import Producer

from kafka_pubsub import PubSub
from kafka_pubsub.core.multicast.layout import GROUP
from kafka_pubsub.kafka.backend import KafkaBackend
from tests.benchmarks.cluster import PRODUCER, create_plainly
from tests.benchmarks.figures import percentile
from tests.benchmarks.row import Measured, say

__all__ = ["bare", "latency", "throughput"]

BODY = bytes(100)
#: Topics of a message, and messages of one bare transaction, as the publisher's.
TOPICS, AT_ONCE = 3, 500
_READY_S, _WARMUP = 60.0, 300


def throughput(bootstrap: str, topic: str, messages: int, groups: int, sequencers: int) -> Measured:
    """Publishes to `groups` disjoint groups of three topics, by a publisher each."""
    names = [[f"{topic}-{groups}-{group}-{n}" for n in range(TOPICS)] for group in range(groups)]
    with _causal(bootstrap, names, sequencers):
        clients = [PubSub(bootstrap) for _ in names]
        for client, mine in zip(clients, names, strict=True):
            _publish(client, mine, _WARMUP)
        say("publishing")
        share = messages // groups
        threads = [
            threading.Thread(target=_publish, args=(client, mine, share))
            for client, mine in zip(clients, names, strict=True)
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        for client in clients:
            client.close()
    return {"rate": share * groups / seconds}


def latency(bootstrap: str, topic: str, rate: int, seconds: int) -> Measured:
    """Publishes at a fixed rate; from when a message was meant to be published until its future has resolved."""
    names = [f"{topic}-{n}" for n in range(TOPICS)]
    late: list[float] = []
    with _causal(bootstrap, [names], 1), PubSub(bootstrap) as client:
        _publish(client, names, _WARMUP)
        began = time.perf_counter()
        sent = []
        for number in range(rate * seconds):
            at = began + number / rate
            time.sleep(max(0.0, at - time.perf_counter()))
            future = client.publish_multi(names, BODY)
            future.add_done_callback(partial(_note, late, at))
            sent.append(future)
        wait(sent, _READY_S)
        for future in sent:
            future.result(0)
    late.sort()
    return {
        "p50_ms": percentile(late, 50) * 1e3,
        "p99_ms": percentile(late, 99) * 1e3,
        "max_ms": late[-1] * 1e3,
    }


def bare(bootstrap: str, topic: str, messages: int) -> Measured:
    """Transactions that write each message to three topics: atomic, without a common order."""
    names = [f"{topic}-bare-{n}" for n in range(TOPICS)]
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
    started = time.perf_counter()
    for _ in range(0, messages, AT_ONCE):
        producer.begin_transaction()
        for _ in range(AT_ONCE):
            for name in names:
                producer.produce(name, BODY, partition=0)
        producer.commit_transaction()
    return {"rate": messages / (time.perf_counter() - started)}


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
        end = time.monotonic() + _READY_S
        while backend.admin.group_members(GROUP) < sequencers:
            if time.monotonic() > end:
                raise RuntimeError(f"not {sequencers} sequencers after {_READY_S:.0f} s")
            time.sleep(0.1)
        yield
    finally:
        backend.close()
        for each in running:
            each.terminate()
        for each in running:
            each.wait(_READY_S)


def _note(late: list[float], at: float, future: object) -> None:
    late.append(time.perf_counter() - at)


def _publish(client: PubSub, names: Sequence[str], count: int) -> None:
    futures = [client.publish_multi(names, BODY) for _ in range(count)]
    for future in futures:
        future.result(_READY_S)
