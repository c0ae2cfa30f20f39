"""The client under test, used as its documentation says and at its defaults, a single process each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafka_pubsub import Message, PubSub, Topic
from tests.benchmarks.cluster import committed_total
from tests.benchmarks.data import Payloads, key_name, keys, places
from tests.benchmarks.memory import peak_megabytes
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["handler", "memory", "publish", "publish_many", "pull", "stuck"]

# Seconds for a stream to end its handlers and commit.
CLOSE_TIMEOUT_S = 60.0


def publish(bootstrap: str, topic: str, warmup: int, measured: int, distinct: int) -> Measured:
    """A future for each message, kept until all are resolved."""

    def send(handle: Topic, batch: list[tuple[str, bytes]]) -> None:
        futures = [handle.publish(value, ordering_key=key) for key, value in batch]
        for future in futures:
            future.result(timeout=120)

    return _publish(bootstrap, topic, warmup, measured, distinct, send)


def publish_many(bootstrap: str, topic: str, warmup: int, measured: int, distinct: int) -> Measured:
    """All with a single call, and the id of each."""

    def send(handle: Topic, batch: list[tuple[str, bytes]]) -> None:
        futures = handle.publish_many({"data": value, "ordering_key": key} for key, value in batch)
        if len(futures.result(timeout=120)) != len(batch):
            raise RuntimeError("ids are missing")

    return _publish(bootstrap, topic, warmup, measured, distinct, send)


def _publish(
    bootstrap: str,
    topic: str,
    warmup: int,
    measured: int,
    distinct: int,
    send: Callable[[Topic, list[tuple[str, bytes]]], None],
) -> Measured:
    payloads = Payloads()
    prepared = [
        (key_name(number), payloads.make(number, place))
        for number, place in places(keys(warmup + measured, distinct))
    ]
    with PubSub(bootstrap) as pubsub:
        handle = pubsub.topic(topic)
        send(handle, prepared[:warmup])
        started, busy = time.perf_counter(), time.process_time()
        send(handle, prepared[warmup:])
        seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    return {"rate": measured / seconds, "cpu_us": cpu / measured * 1e6}


def pull(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """A callback that acknowledges; afterwards the broker must know of every ack."""
    meter = Meter(warmup, measured)
    count = meter.one

    def handle(message: Message) -> None:
        message.ack()
        count()

    with PubSub(bootstrap) as pubsub:
        stream = pubsub.subscription(group).pull(handle)
        rate = meter.wait(patience)
        stream.close(timeout=CLOSE_TIMEOUT_S)
    committed = committed_total(bootstrap, group, topic)
    if committed != warmup + measured:
        raise RuntimeError(f"{warmup + measured} messages acknowledged, {committed} committed")
    return {"rate": rate}


def handler(
    bootstrap: str,
    topic: str,
    group: str,
    workers: int,
    warmup: int,
    measured: int,
    handler: float,
    patience: float,
) -> Measured:
    """A callback that sleeps, on threads."""
    meter = Meter(warmup, measured)

    def handle(message: Message) -> None:
        time.sleep(handler)
        message.ack()
        meter.one()

    with PubSub(bootstrap) as pubsub:
        stream = pubsub.subscription(group).pull(handle, max_workers=workers)
        rate = meter.wait(patience)
        stream.close(timeout=CLOSE_TIMEOUT_S)
    return {"rate": rate}


def stuck(
    bootstrap: str,
    topic: str,
    group: str,
    workers: int,
    handler: float,
    warmup: int,
    seconds: float,
    stick: bool,
    patience: float,
) -> Measured:
    """The work of the other keys while a key's callback sticks, or, without `stick`, in the same time."""
    watch = _Watch(key_name(0), warmup, stick)

    def handle(message: Message) -> None:
        watch.starts(message.ordering_key)
        time.sleep(handler)
        message.ack()
        watch.ends(message.ordering_key)

    with PubSub(bootstrap) as pubsub:
        stream = pubsub.subscription(group).pull(handle, max_workers=workers)
        if not watch.stuck.wait(patience):
            raise RuntimeError(f"key {watch.key} was not delivered within {patience:.0f} s after the warm-up")
        started, before = time.perf_counter(), watch.others
        time.sleep(seconds)
        rate = (watch.others - before) / (time.perf_counter() - started)
        deliveries = watch.deliveries_while_stuck
        watch.release.set()
        stream.close(timeout=CLOSE_TIMEOUT_S)
    if stick and deliveries != 1:
        raise RuntimeError(f"the stuck key had {deliveries} deliveries at once, which breaks its order")
    return {"others_rate": rate}


class _Watch:
    """Sticks the key once, after the warm-up, and counts the messages of the others."""

    def __init__(self, key: str, warmup: int, stick: bool) -> None:
        self.key = key
        self.stuck = threading.Event()
        self.release = threading.Event()
        self.others = 0
        self.deliveries_while_stuck = 0
        self._warmup = warmup
        self._stick = stick
        # The handlers sleep 5 ms; a lock of their counters costs them nothing.
        self._lock = threading.Lock()

    def starts(self, key: str | None) -> None:
        if key != self.key or self.others < self._warmup or self.release.is_set():
            return
        self.deliveries_while_stuck += 1
        self.stuck.set()
        if self._stick:
            self.release.wait()

    def ends(self, key: str | None) -> None:
        if key != self.key:
            with self._lock:
                self.others += 1


def memory(
    bootstrap: str, topic: str, group: str, messages: int, slow_seconds: float, patience: float
) -> Measured:
    """The highest resident memory while a backlog is worked off, first slowly and then at full speed."""
    meter = Meter(1, messages - 1)
    hurry = threading.Event()

    def handle(message: Message) -> None:
        if not hurry.is_set():
            time.sleep(0.005)
        message.ack()
        meter.one()

    with PubSub(bootstrap) as pubsub:
        stream = pubsub.subscription(group).pull(handle, max_workers=16)
        meter.done.wait(slow_seconds)
        hurry.set()
        meter.wait(patience)
        stream.close(timeout=CLOSE_TIMEOUT_S)
    return {"peak_mb": peak_megabytes()}
