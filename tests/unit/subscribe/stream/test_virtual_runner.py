"""Streams on a clock that a test moves: backoffs and deadlines come when the clock is advanced."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafka_pubsub import (
    DeadLetterPolicy,
    DeadlineExceeded,
    Message,
    PubSub,
    Topic,
)
from kafka_pubsub.log.memory import VirtualClock
from tests.unit.log.memory.test_clock import PATIENCE, TEN, Calls


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ps(clock: VirtualClock) -> Iterator[PubSub]:
    with PubSub.in_memory(clock=clock) as pubsub:
        yield pubsub


@pytest.fixture
def topic(ps: PubSub) -> Topic:
    return ps.create_topic("orders")


@pytest.fixture
def calls(clock: VirtualClock) -> Calls:
    return Calls(clock)


def test_a_backoff_passes_when_the_clock_is_advanced(
    ps: PubSub, topic: Topic, clock: VirtualClock, calls: Calls
) -> None:
    with ps.create_subscription("billing", topic, retry=TEN).pull(calls):
        topic.publish(b"nacked").result(PATIENCE)
        clock.advance(9)
        assert calls.made == [(b"nacked", 1)]
        clock.advance(1)
        assert calls.made == [(b"nacked", 1), (b"nacked", 2)]
        clock.advance(30)
        assert calls.made == [(b"nacked", attempt) for attempt in (1, 2, 3, 4, 5)]


def test_without_a_backoff_nothing_needs_to_be_advanced(ps: PubSub, topic: Topic) -> None:
    done = threading.Event()

    def handle(message: Message) -> None:
        if message.delivery_attempt < 4:
            raise ValueError("not yet")
        message.ack_with_response().add_done_callback(lambda _: done.set())

    with ps.create_subscription("billing", topic).pull(handle):
        topic.publish(b"").result(PATIENCE)
        assert done.wait(PATIENCE)


def test_a_deadline_passes_when_the_clock_is_advanced(
    ps: PubSub, topic: Topic, clock: VirtualClock, calls: Calls
) -> None:
    with ps.create_subscription("billing", topic, ack_deadline=20).pull(calls):
        topic.publish(b"kept").result(PATIENCE)
        clock.advance(18)
        assert calls.made == [(b"kept", 1)]
        clock.advance(2)
        assert calls.made == [(b"kept", 1), (b"kept", 2)]


def test_used_up_attempts_become_a_dead_letter(
    ps: PubSub, topic: Topic, clock: VirtualClock, calls: Calls
) -> None:
    ps.create_topic("failed")
    policy = DeadLetterPolicy(topic="failed", max_attempts=5)
    sub = ps.create_subscription("billing", topic, retry=TEN, dead_letter=policy)
    letters: list[bytes] = []

    def take(message: Message) -> None:
        letters.append(message.data)
        message.ack()

    with sub.pull(calls), ps.create_subscription("watch", "failed").pull(take):
        topic.publish(b"nacked").result(PATIENCE)
        clock.advance(39)
        assert (len(calls.made), letters) == (4, [])
        clock.advance(2)
        assert (len(calls.made), letters) == (5, [b"nacked"])


def test_a_key_waits_behind_its_message(ps: PubSub, topic: Topic, clock: VirtualClock, calls: Calls) -> None:
    once = {"nacked"}

    def handle(message: Message) -> None:
        calls.made.append((message.data, message.delivery_attempt))
        if message.data.decode() in once:
            once.clear()
            message.nack()
        else:
            message.ack()

    sub = ps.create_subscription("billing", topic, retry=TEN, message_ordering=True)
    with sub.pull(handle):
        for data, key in ((b"nacked", "k"), (b"behind", "k"), (b"other", "o")):
            topic.publish(data, ordering_key=key).result(PATIENCE)
        clock.advance(9)
        assert sorted(calls.made) == [(b"nacked", 1), (b"other", 1)]
        clock.advance(1)
        assert calls.made[2:] == [(b"nacked", 2), (b"behind", 1)]


def test_a_callback_that_lasts_keeps_its_message(
    ps: PubSub, topic: Topic, clock: VirtualClock, calls: Calls
) -> None:
    goes_on = threading.Event()

    def handle(message: Message) -> None:
        calls.made.append((message.data, message.delivery_attempt))
        if len(calls.made) == 1:
            goes_on.wait(PATIENCE)
        message.ack()

    with ps.create_subscription("billing", topic, ack_deadline=10, max_extension=60).pull(handle):
        topic.publish(b"long").result(PATIENCE)
        with pytest.raises(
            DeadlineExceeded, match=r"advance: after 0.2 s .* subscription 'billing': a callback runs"
        ):
            clock.advance(30, timeout=0.2)
        clock.advance(30, callbacks=False)
        assert calls.made == [(b"long", 1)]
        clock.advance(60, callbacks=False)
        goes_on.set()
        clock.advance(0)
        assert calls.made == [(b"long", 1), (b"long", 2)]


def test_receive_gets_what_has_become_due(ps: PubSub, topic: Topic, clock: VirtualClock) -> None:
    sub = ps.create_subscription("billing", topic, ack_deadline=30)
    topic.publish(b"later", delay=60).result(PATIENCE)
    with sub:
        assert sub.receive(1, timeout=0.3) == []
        clock.advance(60)
        (message,) = sub.receive(1, timeout=PATIENCE)
        assert message.publish_time.timestamp() == pytest.approx(clock.now(), abs=1)
        clock.advance(31)
        (again,) = sub.receive(1, timeout=PATIENCE)
        assert (again.data, again.delivery_attempt) == (b"later", 2)
        again.ack()
