"""Redelivery on a real Kafka, as the README promises it: to callbacks on threads and to coroutines alike."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import Any

import pytest

from kafka_pubsub import DeadLetterPolicy, Message, RetryPolicy, Subscription, aio
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

SOON = RetryPolicy(min_backoff=0.05, max_backoff=0.2)
#: Seconds. Long enough to be told from "as soon as possible" on a busy machine.
LATER = 2.0

Handler = Callable[[Message], object]
Pulling = Callable[[Subscription, Handler], AbstractContextManager[None]]


@contextmanager
def on_threads(subscription: Subscription, handle: Handler) -> Iterator[None]:
    with subscription.pull(handle):
        yield


@contextmanager
def on_a_loop(bootstrap: str, subscription: Subscription, handle: Handler) -> Iterator[None]:
    """The same handler as a coroutine, on a loop of its own."""
    loop, begun = asyncio.new_event_loop(), threading.Event()
    end = asyncio.Event()

    async def main() -> None:
        async def callback(message: Message) -> None:
            await asyncio.sleep(0)
            handle(message)

        async with aio.PubSub(bootstrap) as ps, ps.subscription(subscription.name).pull(callback):
            begun.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert begun.wait(PATIENCE)
        yield
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        loop.close()


@pytest.fixture(params=["threads", "asyncio"])
def pulling(request: pytest.FixtureRequest, kafka: RunningKafka) -> Pulling:
    if request.param == "threads":
        return on_threads
    return lambda subscription, handle: on_a_loop(kafka.bootstrap, subscription, handle)


def publish(topic: Any, count: int, keys: int = 3) -> None:
    all_stored(topic.publish(b"%d" % n, ordering_key=f"k{n % keys}") for n in range(count))


def in_order(log: Deliveries, count: int, keys: int = 3) -> None:
    """Every key's messages were begun in the order in which they were published, and one at a time."""
    expected = {f"k{key}": [b"%d" % n for n in range(key, count, keys)] for key in range(keys)}
    assert log.first_of_each() == expected
    assert log.most_of_a_key == 1


def test_a_nack_with_a_delay_waits_so_long_and_holds_its_key_only(
    room: Room, log: Deliveries, pulling: Pulling
) -> None:
    topic, subscription = room.pair(retry=SOON)
    nacked: list[float] = []
    again: list[float] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"3" and message.delivery_attempt == 1:
                nacked.append(time.time())
                message.nack(delay=LATER)
                return
            if message.data == b"3":
                again.append(time.time())
            message.ack()

    with pulling(subscription, handle):
        publish(topic, 30)
        until(lambda: again)
        log.wait_for_distinct(30)
    assert again[0] - nacked[0] >= LATER, "it came before it was due"
    back = max(at for at, body in enumerate(log.bodies) if body == b"3")
    assert {b"%d" % n for n in range(30) if n % 3} <= set(log.bodies[:back]), "another key waited for it"
    assert b"6" not in log.bodies[:back], "its own key didn't"
    in_order(log, 30)


def test_no_redelivery_comes_before_the_backoffs_lower_bound(
    room: Room, log: Deliveries, pulling: Pulling
) -> None:
    topic, subscription = room.pair(retry=RetryPolicy(min_backoff=0.3, max_backoff=0.6))
    times: list[float] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"0":
                times.append(time.time())
                if message.delivery_attempt < 5:
                    message.nack()
                    return
            message.ack()

    with pulling(subscription, handle):
        publish(topic, 6)
        log.wait_for_distinct(6)
    assert len(times) == 5
    assert all(later - earlier >= 0.3 for earlier, later in pairwise(times)), times
    in_order(log, 6)


def test_a_callback_that_raises_nacks_and_the_dead_letter_says_why(
    room: Room, log: Deliveries, pulling: Pulling
) -> None:
    topic, dead_letter_topics = room.topic(), room.topic(partitions=2)
    policy = DeadLetterPolicy(topic=dead_letter_topics.name, max_attempts=5)
    subscription = room.subscription(topic, retry=SOON, dead_letter=policy)
    buried = room.subscription(dead_letter_topics)
    attempts: list[int] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"4":
                attempts.append(message.delivery_attempt)
                raise LookupError("no customer 4 in the books")
            message.ack()

    with pulling(subscription, handle):
        publish(topic, 30)
        log.wait_for_distinct(30)
        dead_letters = buried.receive(1, timeout=PATIENCE)
    assert attempts == [1, 2, 3, 4, 5]
    in_order(log, 30)
    (dead_letter,) = dead_letters
    said = {
        name: (value or b"").decode() for name, value in dead_letter.headers if name.startswith("ps-dead-")
    }
    assert (dead_letter.data, dead_letter.ordering_key) == (b"4", "k1")
    assert said["ps-dead-topic"] == topic.name
    assert said["ps-dead-subscription"] == subscription.name
    assert (said["ps-dead-attempts"], said["ps-dead-crashes"]) == ("5", "0")
    assert said["ps-dead-error-class"] == "LookupError"
    assert said["ps-dead-error"] == "no customer 4 in the books"
    dead_letter.ack()
    until(lambda: subscription.state().lag == 0)


def test_a_message_that_nobody_answers_for_comes_again_after_its_deadline(
    room: Room, log: Deliveries, pulling: Pulling
) -> None:
    topic, subscription = room.pair(retry=SOON, ack_deadline=1)
    kept: list[Message] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"0" and message.delivery_attempt == 1:
                kept.append(message)
            else:
                message.ack()

    with pulling(subscription, handle):
        publish(topic, 12)
        log.wait_for_distinct(12)
        kept[0].ack()  # too late: it changes nothing
    assert log.bodies.count(b"0") == 2
    in_order(log, 12)


def test_park_keeps_a_key_until_it_is_released(room: Room, log: Deliveries, pulling: Pulling) -> None:
    topic, dead_letter_topics = room.topic(), room.topic(partitions=1)
    policy = DeadLetterPolicy(topic=dead_letter_topics.name, max_attempts=5, on_exhausted="park")
    subscription = room.subscription(topic, retry=SOON, dead_letter=policy)
    mended = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"1" and not mended.is_set():
                message.nack()
            else:
                message.ack()

    def parked() -> bool:
        return any(each.key == b"k1" and "parked" in each.reason for each in subscription.state().blocked)

    with pulling(subscription, handle):
        publish(topic, 30)
        until(lambda: log.bodies.count(b"1") == 5)
        log.wait_for_distinct(21)
        until(parked)
        assert set(log.bodies) == {b"%d" % n for n in range(30) if n % 3 != 1 or n == 1}
        mended.set()
        subscription.release(keys=["k1"])
        log.wait_for_distinct(30)
    in_order(log, 30)


def test_what_waits_goes_on_with_another_process(kafka: RunningKafka, room: Room, log: Deliveries) -> None:
    """Attempts, due times and order are the log's, not the process's."""
    topic, subscription = room.pair(retry=SOON)
    failed = threading.Event()

    def fails(message: Message) -> None:
        if message.data == b"0":
            message.nack(delay=LATER)
            failed.set()
        else:
            message.ack()

    attempts: dict[bytes, int] = {}

    def handle(message: Message) -> None:
        with log.handling(message):
            attempts[message.data] = message.delivery_attempt
            message.ack()

    with subscription.pull(fails) as stream:
        publish(topic, 10, keys=1)
        assert failed.wait(PATIENCE)
        until(lambda: stream.stats.moved >= 1)
    with on_a_loop(kafka.bootstrap, subscription, handle):
        log.wait_for_distinct(10)
    assert attempts[b"0"] == 2
    in_order(log, 10, keys=1)
