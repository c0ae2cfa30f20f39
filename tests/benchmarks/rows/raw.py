"""The rates of the same librdkafka without us, and of bare Python without Kafka: the yardsticks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Message, Producer

from tests.benchmarks.cluster import CONSUMER, PRODUCER
from tests.benchmarks.data import Payloads, key_name, keys, places
from tests.benchmarks.memory import peak_megabytes
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["bare_tasks", "bare_threads", "floor", "memory", "publish", "pull"]


def publish(bootstrap: str, topic: str, warmup: int, measured: int, distinct: int) -> Measured:
    """`produce` with a delivery callback for each message; over when every callback has run."""
    delivered = 0
    failed = 0

    def report(error: object, _message: object) -> None:
        nonlocal delivered, failed
        delivered += error is None
        failed += error is not None

    reached = _publish(bootstrap, topic, warmup, measured, distinct, lambda: report)
    if failed or delivered != warmup + measured:
        raise RuntimeError(f"{delivered} delivered, {failed} failed, of {warmup + measured}")
    return reached


class _Slotted:
    """The least that can be called a future: it learns where its message is."""

    __slots__ = ("offset", "partition")

    def __call__(self, error: object, message: Message) -> None:
        if error is None:
            self.partition, self.offset = message.partition(), message.offset()


def floor(bootstrap: str, topic: str, warmup: int, measured: int, distinct: int) -> Measured:
    """The same with a bare slotted object for each message, kept to the end: the least that a future each can cost."""
    kept: list[_Slotted] = []

    def keep() -> _Slotted:
        kept.append(one := _Slotted())
        return one

    reached = _publish(bootstrap, topic, warmup, measured, distinct, keep)
    stored = sum(hasattr(one, "offset") for one in kept)
    if stored != warmup + measured:
        raise RuntimeError(f"{stored} stored of {warmup + measured}")
    return reached


def _publish(
    bootstrap: str,
    topic: str,
    warmup: int,
    measured: int,
    distinct: int,
    new_report: Callable[[], Callable[..., None]],
) -> Measured:
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
    prepared = _values(warmup + measured, distinct)

    def send(batch: list[tuple[str, bytes]]) -> None:
        for key, value in batch:
            report = new_report()
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=report)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        producer.flush(120)

    send(prepared[:warmup])
    started, busy = time.perf_counter(), time.process_time()
    send(prepared[warmup:])
    seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    return {"rate": measured / seconds, "cpu_us": cpu / measured * 1e6}


def _values(count: int, distinct: int) -> list[tuple[str, bytes]]:
    payloads = Payloads()
    return [
        (key_name(number), payloads.make(number, place)) for number, place in places(keys(count, distinct))
    ]


def pull(
    bootstrap: str,
    topic: str,
    group: str,
    warmup: int,
    measured: int,
    patience: float,
    batches: list[int],
    trial: int,
) -> Measured:
    """`consume(n)` at the best of several `n`, found by shorter trials over the same topic."""
    tried = {
        batch: _pull(bootstrap, topic, f"{group}-trial-{batch}", warmup, trial, patience, batch)
        for batch in batches
    }
    best = max(tried, key=lambda batch: tried[batch])
    rate = _pull(bootstrap, topic, group, warmup, measured, patience, best)
    trials = ", ".join(f"{batch}: {each / 1000:.0f}k/s" for batch, each in tried.items())
    return {"rate": rate, "note": f"consume({best}) (trials of {trial:,}: {trials})"}


def _pull(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float, batch_size: int
) -> float:
    """Messages per second, with key, value, partition and offset read of each message; nothing is committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **CONSUMER})
    consumer.subscribe([topic])
    meter = Meter(warmup, measured)
    deadline = time.monotonic() + patience
    read_on = True
    while read_on and time.monotonic() < deadline:
        batch = consumer.consume(batch_size, 0.1)
        for message in batch:
            if message.error():
                raise RuntimeError(str(message.error()))
            message.key(), message.value(), message.partition(), message.offset()
        read_on = meter.many(len(batch))
    consumer.close()
    return meter.rate()


def memory(bootstrap: str, topic: str, group: str, messages: int, patience: float) -> Measured:
    """The highest resident memory of the reader above, at librdkafka's own limits."""
    rate = _pull(bootstrap, topic, group, 1, messages - 1, patience, 5000)
    return {"peak_mb": peak_megabytes(), "rate": rate}


def bare_threads(workers: int, warmup: int, measured: int, handler: float) -> Measured:
    """So many threads that only sleep and count."""
    meter = Meter(warmup, measured)

    def work() -> None:
        while not meter.done.is_set():
            time.sleep(handler)
            meter.one()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    return {"rate": meter.wait(600)}


def bare_tasks(workers: int, warmup: int, measured: int, handler: float) -> Measured:
    """So many asyncio tasks that only sleep and count."""
    meter = Meter(warmup, measured)

    async def work() -> None:
        while not meter.done.is_set():
            await asyncio.sleep(handler)
            meter.one()

    async def everyone() -> None:
        await asyncio.gather(*(work() for _ in range(workers)))

    asyncio.run(everyone())
    return {"rate": meter.rate()}
