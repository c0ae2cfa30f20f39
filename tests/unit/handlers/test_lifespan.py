"""Resources of an app that are entered and left on the loop of another thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from kafka_pubsub.handlers import lifespan
from kafka_pubsub.handlers.lifespan import LoopThread, on_loop


def test_a_loop_that_a_handler_blocks_holds_up_no_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The resource is closed once the loop goes on."""
    monkeypatch.setattr(lifespan, "_ANSWER", 0.1)
    blocked, free, closed = threading.Event(), threading.Event(), threading.Event()

    @contextlib.asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(0.01)
        closed.set()

    def block() -> None:
        blocked.set()
        free.wait(30)

    thread = LoopThread()
    with on_loop(resource(), thread.loop):
        thread.loop.call_soon_threadsafe(block)
        assert blocked.wait(30)
    assert "blocked" in caplog.text
    thread.close()
    assert not closed.is_set()
    free.set()
    assert closed.wait(30)


def test_a_resource_takes_its_time_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifespan, "_ANSWER", 0.1)
    closed: list[str] = []

    @contextlib.asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(0.3)
        closed.append("closed")

    thread = LoopThread()
    with on_loop(resource(), thread.loop):
        pass
    assert closed == ["closed"]
    thread.close()


def test_an_error_of_a_close_is_raised() -> None:
    @contextlib.asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        yield
        raise ValueError("no")

    thread = LoopThread()
    with pytest.raises(ValueError, match="no"), on_loop(resource(), thread.loop):
        pass
    thread.close()
