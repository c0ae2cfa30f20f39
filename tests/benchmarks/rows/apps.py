"""Handlers of an `App` that take a model, and the same work in callbacks of the client."""

from __future__ import annotations

import asyncio

from pydantic import TypeAdapter

from kafka_pubsub import App, Message, PubSub
from kafka_pubsub.aio import Message as AioMessage
from kafka_pubsub.aio import PubSub as AioPubSub
from tests.benchmarks.cluster import create_with_us, fill, read_through
from tests.benchmarks.data import Order, order_of
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["aio_callbacks", "callbacks", "coroutines", "handlers", "prepare"]

validate = TypeAdapter(Order).validate_json


def prepare(
    bootstrap: str, topic: str, distinct: int, messages: int, subscriptions: list[str], ours: bool
) -> Measured:
    """Makes the topic and its subscriptions, and fills it with orders."""
    create_with_us(bootstrap, topic, subscriptions)
    fill(bootstrap, topic, distinct, messages, order_of)
    read_through(bootstrap, topic, messages)
    return {"published": messages}


def callbacks(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float
) -> Measured:
    """A callback that validates the body by itself."""
    meter = Meter(warmup, measured)

    def handle(message: Message) -> None:
        validate(message.data)
        message.ack()
        meter.one()

    with PubSub(bootstrap) as pubsub:
        stream = pubsub.subscription(group).pull(handle)
        rate = meter.wait(patience)
        stream.close(timeout=60)
    return {"rate": rate}


def handlers(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """A handler of an `App`."""
    meter = Meter(warmup, measured)
    app = App(bootstrap)

    @app.subscriber(group, topic=topic, message_ordering=True)
    def handle(order: Order) -> None:
        meter.one()

    return _run(app, meter, patience)


def coroutines(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float
) -> Measured:
    """An `async def` handler of an `App`."""
    meter = Meter(warmup, measured)
    app = App(bootstrap)

    @app.subscriber(group, topic=topic, message_ordering=True)
    async def handle(order: Order) -> None:
        meter.one()

    return _run(app, meter, patience)


def _run(app: App, meter: Meter, patience: float) -> Measured:
    app.start()
    try:
        return {"rate": meter.wait(patience)}
    finally:
        app.stop()


def aio_callbacks(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float
) -> Measured:
    """A coroutine as the callback, which validates the body by itself."""
    meter = Meter(warmup, measured)

    async def run() -> float:
        done = asyncio.Event()

        async def handle(message: AioMessage) -> None:
            validate(message.data)
            message.ack()
            meter.one()
            if meter.done.is_set():
                done.set()

        async with AioPubSub(bootstrap) as pubsub:
            stream = await pubsub.subscription(group).pull(handle)
            await asyncio.wait_for(done.wait(), patience)
            await stream.close(timeout=60)
        return meter.rate()

    return {"rate": asyncio.run(run())}
