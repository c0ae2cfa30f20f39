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
from kafka_pubsub.errors import DeadlineExceeded, FailedPrecondition, PubSubError, ResourceExhausted
from kafka_pubsub.publish import writer_pool
from tests.support import until
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


def test_a_publisher_that_serves_reports_while_it_waits_for_room_wakes_a_flush(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report that ends a flush takes the topic's lock, so the publisher that serves it must not hold the lock."""
    publisher = world.publisher
    publisher.configure(flow=PublishFlow(max_messages=3))
    for _ in range(3):
        publisher.publish(b"x")
    flushing = threading.Thread(target=publisher.flush, args=(PATIENCE,), daemon=True)
    flushing.start()
    until(lambda: publisher._outstanding._waiting, "a flush that waits")
    monkeypatch.setattr(writer_pool, "_STAND_BY_S", PATIENCE)
    reporter = publisher._last_reporter
    assert reporter is not None
    until(reporter.take_turn, "a report thread that stands by")
    world.writer.report(3)
    publishing = threading.Thread(target=publisher.publish, args=(b"y",), daemon=True)
    publishing.start()
    publishing.join(PATIENCE)
    assert not publishing.is_alive()
    flushing.join(PATIENCE)
    assert not flushing.is_alive()
    assert len(world.writer.appended) == 4
    world.writer.report(1)


@pytest.mark.parametrize("busy", [False, True], ids=["full", "refused"])
def test_a_publish_that_waits_ends_when_the_publisher_closes(world: World, busy: bool) -> None:
    """It waits for room, or for a writer that takes messages again."""
    publisher, errors = world.publisher, list[PubSubError]()
    publisher.configure(flow=PublishFlow(max_messages=1))
    publisher.publish(b"stored later")
    if busy:
        publisher.configure(flow=PublishFlow())
        world.writer.refusals.extend(BufferError("try again") for _ in range(1_000_000))

    def publish() -> None:
        try:
            publisher.publish(b"too late")
        except PubSubError as error:
            errors.append(error)

    waiting = threading.Thread(target=publish, daemon=True)
    waiting.start()
    if busy:
        until(lambda: len(world.writer.refusals) < 999_990, "a publisher that tries again")
    else:
        until(lambda: publisher._outstanding._wanting_room, "a publisher that waits for room")
    publisher.close(0.01)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    assert [type(each) for each in errors] == [FailedPrecondition]
    assert len(world.writer.appended) == 1
