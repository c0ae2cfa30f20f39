"""The asyncio copy of the client under test."""

from __future__ import annotations

import asyncio

from kafka_pubsub.aio import Message, PubSub
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["handler"]


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
    """A coroutine that sleeps, so many at a time."""
    meter = Meter(warmup, measured)

    async def run() -> float:
        done = asyncio.Event()

        async def handle(message: Message) -> None:
            await asyncio.sleep(handler)
            message.ack()
            meter.one()
            if meter.done.is_set():
                done.set()

        async with PubSub(bootstrap) as pubsub:
            stream = await pubsub.subscription(group).pull(handle, max_workers=workers)
            await asyncio.wait_for(done.wait(), patience)
            await stream.close(timeout=60)
        return meter.rate()

    return {"rate": asyncio.run(run())}
