"""A coroutine that blocks its loop is named; one that waits isn't."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from kafka_pubsub import App, PubSub
from tests.support import until


def test_a_handler_that_blocks_the_loop_is_named_with_its_line(
    pubsub: PubSub, caplog: pytest.LogCaptureFixture
) -> None:
    app, done = App(pubsub=pubsub), list[bytes]()

    @app.subscriber("billing", topic="orders", ack_deadline=1)
    async def blocks(body: bytes) -> None:
        await asyncio.sleep(0)
        if body == b"block":
            time.sleep(2)
        done.append(body)

    @app.subscriber("mail", topic="orders", ack_deadline=1)
    async def waits(body: bytes) -> None:
        await asyncio.sleep(1.5)

    with caplog.at_level(logging.WARNING, "kafka_pubsub.app"):
        app.start()
        pubsub.topic("orders").publish(b"good").result(30)
        until(lambda: done)
        assert "event loop" not in caplog.text
        pubsub.topic("orders").publish(b"block").result(30)
        until(lambda: len(done) == 2)
        app.stop()
    (warning,) = [each.getMessage() for each in caplog.records if "event loop" in each.getMessage()]
    assert warning.startswith("subscriber 'billing' (blocks() in ")
    assert "test_loop_watch.py:" in warning
    assert "make the handler a plain `def`" in warning
