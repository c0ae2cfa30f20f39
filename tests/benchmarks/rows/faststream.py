"""Peer: FastStream over confluent-kafka, each message acknowledged by itself (`AckPolicy.ACK`)."""

from __future__ import annotations

import asyncio

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

from tests.benchmarks.data import Order
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["models", "pull"]


def pull(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """A subscriber whose handler does nothing."""
    return _run(bytes, bootstrap, topic, group, warmup, measured, patience)


def models(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """A subscriber whose handler takes a model."""
    return _run(Order, bootstrap, topic, group, warmup, measured, patience)


def _run(
    kind: type, bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float
) -> Measured:
    meter = Meter(warmup, measured)
    broker = KafkaBroker(bootstrap, logger=None)
    app = FastStream(broker, logger=None)

    async def handle(body: object) -> None:
        meter.one()
        if meter.done.is_set():
            app.exit()

    handle.__annotations__["body"] = kind

    # Not as a decorator: where FastStream isn't installed, a strict type checker calls decorated functions untyped.
    subscriber = broker.subscriber(
        topic, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK
    )
    subscriber(handle)

    async def run() -> None:
        await asyncio.wait_for(app.run(), patience)

    asyncio.run(run())
    return {"rate": meter.rate(), "note": f"{measured:,} messages only: it is slow"}
