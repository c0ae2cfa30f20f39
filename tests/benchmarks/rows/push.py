"""A push to an endpoint in a process of its own; a bare aiohttp loop to the same; and a push with a key that fails."""

from __future__ import annotations

import asyncio

import aiohttp

from kafka_pubsub import PubSub
from kafka_pubsub.worker.connector_unit import ConnectorUnit
from kafka_pubsub.worker.connectors import CLASS
from kafka_pubsub.worker.settings import ConnectorSettings
from tests.benchmarks.data import Payloads, key_name
from tests.benchmarks.endpoint import Figures, endpoint
from tests.benchmarks.row import Measured

__all__ = ["bare", "failing", "push"]


def push(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, concurrency: int, patience: float
) -> Measured:
    """A push connector, as a worker runs it."""
    return {"rate": _pushed(bootstrap, topic, group, warmup, measured, concurrency, patience, "")["rate"]}


def failing(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, concurrency: int, patience: float
) -> Measured:
    """The same; after half of the messages the endpoint refuses a key."""
    found = _pushed(bootstrap, topic, group, warmup, measured, concurrency, patience, key_name(0))
    kept = found["rate_failing"] / found["rate"]
    return {"rate": found["rate_failing"], "kept": kept, "note": f"refused {found['refused']:.0f} requests"}


def _pushed(
    bootstrap: str,
    topic: str,
    group: str,
    warmup: int,
    measured: int,
    concurrency: int,
    patience: float,
    failing_key: str,
) -> Figures:
    with endpoint(warmup, measured, patience, failing_key) as (url, wait):
        config = {
            CLASS: "push",
            "subscription": group,
            "topic": topic,
            "url": url,
            "concurrency": str(concurrency),
            "allow_private": "true",
        }
        settings = ConnectorSettings(config=tuple(config.items()))
        unit = ConnectorUnit("push", settings, lambda: PubSub(bootstrap))
        try:
            unit.start()
            return wait()
        finally:
            unit.stop(60)


def bare(warmup: int, measured: int, concurrency: int, patience: float) -> Measured:
    """As many coroutines that post the bodies in turn, without Kafka."""
    with endpoint(warmup, measured, patience) as (url, wait):
        asyncio.run(_post(url, warmup + measured, concurrency))
        return {"rate": wait()["rate"]}


async def _post(url: str, messages: int, concurrency: int) -> None:
    make = Payloads()
    bodies = (make.make(0, place) for place in range(messages))

    async def post() -> None:
        for body in bodies:
            async with session.post(url, data=body) as response:
                await response.read()

    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(post() for _ in range(concurrency)))
