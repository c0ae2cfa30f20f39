"""Room for messages that are published and not stored."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from kafka_pubsub.config import PublishFlow
from kafka_pubsub.errors import DeadlineExceeded, ResourceExhausted
from tests.unit.publish.test_publisher import PATIENCE, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.pool.close()


@pytest.mark.parametrize("flow", [PublishFlow(max_messages=3), PublishFlow(max_bytes=30)])
def test_publish_blocks_at_the_limit_until_there_is_room(world: World, flow: PublishFlow) -> None:
    world.publisher.configure(flow=flow)
    for _ in range(3):
        world.publisher.publish(b"x" * 10)
    blocked = threading.Thread(target=world.publisher.publish, args=(b"x" * 10,))
    assert world.publisher.would_block(10)
    blocked.start()
    blocked.join(0.05)
    assert blocked.is_alive()
    world.writer.report(1)
    blocked.join(PATIENCE)
    assert not blocked.is_alive()
    assert len(world.writer.appended) == 4


def test_publish_at_the_limit_can_be_an_error_instead(world: World) -> None:
    world.publisher.configure(flow=PublishFlow(max_messages=2, on_limit="error"))
    world.publisher.publish(b"x")
    world.publisher.publish(b"x")
    with pytest.raises(ResourceExhausted, match=r"2 messages .* PublishFlow allows 2"):
        world.publisher.publish(b"x")
    world.writer.report(1)
    world.publisher.configure(flow=PublishFlow(max_messages=3, on_limit="error"))
    world.publisher.publish(b"x")


def test_the_limit_can_be_ignored(world: World) -> None:
    world.publisher.configure(flow=PublishFlow(max_messages=1, max_bytes=1, on_limit="ignore"))
    for _ in range(100):
        world.publisher.publish(b"xx")
    assert len(world.writer.appended) == 100


def test_a_message_larger_than_the_limit_goes_alone(world: World) -> None:
    world.publisher.configure(flow=PublishFlow(max_bytes=10))
    world.publisher.publish(b"x" * 100)
    assert len(world.writer.appended) == 1


def test_the_count_of_stored_messages_is_never_too_large_while_a_flush_begins(world: World) -> None:
    for _ in range(5):
        world.publisher.publish(b"x")
    world.writer.report(2)
    seen: list[int] = []

    def look(_frame: FrameType, _event: str, _argument: Any) -> Any:
        seen.append(world.publisher.stored)
        return look

    def flush() -> None:
        sys.settrace(look)
        with contextlib.suppress(DeadlineExceeded):
            world.publisher.flush(0.01)

    thread = threading.Thread(target=flush)
    thread.start()
    thread.join(PATIENCE)
    assert len(seen) > 10
    assert max(seen) == 2
