"""Peer: aiokafka, asyncio and its own protocol code. Order per partition, messages in turn."""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.benchmarks.data import Payloads, key_name, keys, places
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["publish", "pull"]

# As far behind as the client under test.
COMMIT_EVERY_S = 0.2


def publish(bootstrap: str, topic: str, warmup: int, measured: int, distinct: int) -> Measured:
    """`send`, a future for each message; over when all are resolved."""
    payloads = Payloads()
    prepared = [
        (key_name(number).encode(), payloads.make(number, place))
        for number, place in places(keys(warmup + measured, distinct))
    ]

    async def run() -> tuple[float, float]:
        # Its best of 16 KB (the default: half of this), 64 KB, 256 KB and 1 MB.
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            linger_ms=5,
            max_batch_size=262_144,
        )
        await producer.start()

        async def send(batch: list[tuple[bytes, bytes]]) -> None:
            futures = [await producer.send(topic, value, key) for key, value in batch]
            for future in futures:
                await future

        await send(prepared[:warmup])
        started, busy = time.perf_counter(), time.process_time()
        await send(prepared[warmup:])
        seconds, cpu = time.perf_counter() - started, time.process_time() - busy
        await producer.stop()
        return seconds, cpu

    seconds, cpu = asyncio.run(run())
    return {"rate": measured / seconds, "cpu_us": cpu / measured * 1e6}


def pull(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """`getmany(5000)` with a manual commit of handled messages, every 200 ms."""
    meter = Meter(warmup, measured)

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        deadline = time.monotonic() + patience
        committed = time.monotonic()
        read_on = True
        while read_on and time.monotonic() < deadline:
            batches = await consumer.getmany(max_records=5000, timeout_ms=100)
            for batch in batches.values():
                for message in batch:
                    message.key, message.value, message.partition, message.offset  # noqa: B018
            read_on = meter.many(sum(map(len, batches.values())))
            if time.monotonic() - committed > COMMIT_EVERY_S:
                await consumer.commit()
                committed = time.monotonic()
        await consumer.stop()

    asyncio.run(run())
    return {"rate": meter.rate()}
