"""The delay router at full speed, and beside it a bare loop that consumes, transforms and produces in transactions.

Messages wait in ingest, and none is due while they hop into their first tiers: that is measured, and how long a message
waits doesn't matter for the figure. Then the log's time jumps past all due times, and all come home.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import time
from collections.abc import Callable
from typing import cast

from confluent_kafka import Consumer, Producer

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import DEAD, INGEST, DelayLayout
from kafka_pubsub.delays.records import DELAY_HEADER, DelayRequest, encode_request
from kafka_pubsub.delays.role import DelayRole, DelayTask
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.services.engine import Engine
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.process import alone
from tests.benchmarks.cluster import CONSUMER, PRODUCER
from tests.benchmarks.row import Measured, say

__all__ = ["bare", "router", "waiting"]

#: Delays are uniform from three minutes to 68.
LAYOUT = DelayLayout(12, 2)
SHORTEST_MS, LONGEST_MS = 180_000, 4_095_000
BODY = bytes(100)
#: Records of a transaction, as the router's.
AT_ONCE = 4000
_UNLIMITED = 1e9
#: Of messages that only wait: from one hour to two.
FAR_MS = 3_600_000
#: Seconds that a router runs after the last message came in, and between two reports of its progress.
_REST_S, _SAY_S = 15.0, 20.0

Headers = list[tuple[str, str | bytes | None]]


@alone()
def router(bootstrap: str, topic: str, messages: int) -> Measured:
    """A router that was away: counts each message written to its first tier; then all become due at once."""
    with PubSub(bootstrap) as ps:
        ps.create_topic(topic, partitions=8, exist_ok=True)
    backend = KafkaBackend(bootstrap)
    for name in (*LAYOUT.topics, DEAD):
        backend.admin.create_topic(name, LAYOUT.partitions, None, LAYOUT.settings_of(name))
    _publish(bootstrap, topic, messages)
    metrics = ServiceMetrics()
    role = DelayRole(backend, LAYOUT.tiers, LAYOUT.partitions, metrics, max_rate=_UNLIMITED)
    engine = Engine(backend, role, metrics)
    engine.start()
    while not engine.joined:
        engine.turn()
    say("into the tiers")
    hops, cpu = _run(engine, lambda: metrics.counts.get("hops", 0) >= messages)
    for task in _tasks(engine):  # as if brokers had stamped a record so much later
        task.router.ingest.time += 2 * LONGEST_MS
    say("home")
    written, transactions = metrics.records, metrics.transactions
    home, _ = _run(engine, lambda: metrics.counts.get("home", 0) >= messages)
    engine.close()
    backend.close()
    return {
        "rate": messages / hops,
        "cpu_us": cpu / messages * 1e6,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "note": f"then all were due: {messages / home:,.0f} messages/s came home, "
        f"{metrics.records - written:,} records in {metrics.transactions - transactions} transactions",
    }


def _run(engine: Engine, done: Callable[[], bool]) -> tuple[float, float]:
    """Returns seconds, and processor seconds, until the router is done."""
    started, busy = time.perf_counter(), time.process_time()
    while not done() or engine.busy:
        engine.turn()
    return time.perf_counter() - started, time.process_time() - busy


@alone()
def waiting(bootstrap: str, topic: str, messages: int) -> Measured:
    """The memory of a router's process while messages come in and wait, none of them due."""
    layout = DelayLayout(partitions=2)
    backend = KafkaBackend(bootstrap)
    if INGEST not in backend.admin.topic_names():
        for name in (topic, *layout.topics, DEAD):
            backend.admin.create_topic(name, layout.partitions, None, layout.settings_of(name))
    metrics = ServiceMetrics()
    role = DelayRole(backend, layout.tiers, layout.partitions, metrics)
    engine = Engine(backend, role, metrics)
    engine.start()
    # Its memory isn't the router's.
    publisher = multiprocessing.get_context("spawn").Process(
        target=_publish, args=(bootstrap, topic, messages), kwargs={"shortest": FAR_MS, "longest": 2 * FAR_MS}
    )
    publisher.start()
    started, say_at, rest = time.perf_counter(), time.monotonic() + _SAY_S, None
    while rest is None or time.monotonic() < rest or engine.busy:
        engine.turn()
        if rest is None and metrics.counts.get("hops", 0) >= messages:
            seconds, rest = time.perf_counter() - started, time.monotonic() + _REST_S
        if time.monotonic() > say_at:
            say_at = time.monotonic() + _SAY_S
            say(f"{metrics.counts.get('hops', 0):,} of {messages:,} wait in tiers")
    publisher.join()
    engine.close()
    backend.close()
    return {
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rate": messages / seconds,
        "note": f"{layout.tiers} tiers of {layout.partitions} partitions",
    }


def bare(bootstrap: str, topic: str, messages: int) -> Measured:
    """The same records through a single topic, a header replaced in each, no order of time, no delivery reports."""
    backend = KafkaBackend(bootstrap)
    source = f"{topic}-bare"
    for name in (source, f"{source}-out"):
        backend.admin.create_topic(name, LAYOUT.partitions, None, LAYOUT.settings)
    backend.close()
    _publish(bootstrap, topic, messages, to=source)
    consumer = Consumer(
        {**CONSUMER, "bootstrap.servers": bootstrap, "group.id": source, "fetch.queue.backoff.ms": 5}
    )
    consumer.subscribe([source])
    producer = Producer(
        {
            **PRODUCER,
            "bootstrap.servers": bootstrap,
            "transactional.id": source,
            "linger.ms": 1,
            "retry.backoff.ms": 1,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions()
    done, started, busy = 0, 0.0, 0.0
    while done < messages:
        records = consumer.consume(AT_ONCE, 0.1)
        if not records:
            continue
        started, busy = started or time.perf_counter(), busy or time.process_time()
        producer.begin_transaction()
        for record in records:
            headers: Headers = [(DELAY_HEADER, BODY[:28]), *cast("Headers", record.headers() or [])[1:]]
            place = record.partition() or 0
            producer.produce(f"{source}-out", record.value(), record.key(), place, headers=headers)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        done += len(records)
    seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    consumer.close()
    return {"rate": done / seconds, "cpu_us": cpu / done * 1e6}


def _publish(
    bootstrap: str,
    home: str,
    count: int,
    to: str = INGEST,
    *,
    shortest: int = SHORTEST_MS,
    longest: int = LONGEST_MS,
) -> None:
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap, "linger.ms": 20})
    uniform = random.Random(1)
    for number in range(count):
        request = DelayRequest(home, None, uniform.randrange(shortest, longest))
        key = f"{home}\0key-{number % 1000}".encode()
        headers: Headers = [(DELAY_HEADER, encode_request(request)), ("kind", b"created")]
        while True:
            try:
                producer.produce(to, BODY, key, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _now() -> int:
    return int(time.time() * 1000)


def _tasks(engine: Engine) -> list[DelayTask]:
    return [task for task in engine.tasks.values() if isinstance(task, DelayTask)]
