"""Leases on a real Kafka: how long a handler may keep a message, and which acks count afterwards.

A message that must *not* come again is watched beside a message whose deadline of a second passes several times: time
enough has gone by when the latter has come three times.
"""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub import Message, RetryPolicy
from tests.acceptance.support import PATIENCE, Deliveries, Room, until

SOON = RetryPolicy(min_backoff=0, max_backoff=0)


def expires_twice(message: Message) -> None:
    """The handler of the message that measures the time."""
    if message.delivery_attempt == 3:
        message.ack()


def test_a_lease_is_extended_while_its_callback_runs(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair(ack_deadline=1, retry=SOON)
    release = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.ordering_key == "clock":
                expires_twice(message)
                return
            release.wait(PATIENCE)
            message.ack()

    with subscription.pull(handle) as stream:
        topic.publish(b"slow", ordering_key="slow").result(PATIENCE)
        log.wait_for(1)
        topic.publish(b"tick", ordering_key="clock").result(PATIENCE)
        until(lambda: log.bodies.count(b"tick") == 3)
        release.set()
        until(lambda: stream.stats.acked == 2)
    assert log.bodies.count(b"slow") == 1
    assert stream.stats.stale == 0


def test_extend_moves_the_deadline_and_zero_is_a_nack(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair(ack_deadline=1, retry=SOON)
    held: list[Message] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.ordering_key == "clock":
                expires_twice(message)
            elif message.delivery_attempt == 1:
                message.extend(600)
                held.append(message)
            else:
                message.ack()

    with subscription.pull(handle) as stream:
        topic.publish(b"long", ordering_key="long").result(PATIENCE)
        topic.publish(b"tick", ordering_key="clock").result(PATIENCE)
        until(lambda: log.bodies.count(b"tick") == 3)
        assert log.bodies.count(b"long") == 1
        held[0].extend(0)
        until(lambda: stream.stats.acked == 2)
    assert log.bodies.count(b"long") == 2
    assert stream.stats.stale == 0


def test_a_deadline_may_pass_while_the_callback_runs_and_the_key_stays_with_it(
    room: Room, log: Deliveries
) -> None:
    """`max_extension=0`: the late ack is counted and changes nothing; nobody else gets the key before the end."""
    topic, subscription = room.pair(ack_deadline=1, max_extension=0, retry=SOON)
    release = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"first" and message.delivery_attempt == 1:
                release.wait(PATIENCE)
            message.ack()

    with subscription.pull(handle) as stream:
        topic.publish(b"first", ordering_key="key").result(PATIENCE)
        topic.publish(b"second", ordering_key="key").result(PATIENCE)
        until(lambda: "deadline has passed" in "".join(each.reason for each in subscription.state().blocked))
        assert log.bodies == [b"first"]
        release.set()
        until(lambda: stream.stats.acked == 2)
    assert log.bodies == [b"first", b"first", b"second"]
    assert (log.most_of_a_key, stream.stats.stale) == (1, 1)


def test_an_ack_after_expiry_is_counted_and_changes_nothing(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair(ack_deadline=1, retry=SOON)
    kept: list[Message] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            kept.append(message)
            if message.delivery_attempt == 2:
                message.extend(600)

    with subscription.pull(handle) as stream:
        topic.publish(b"x", ordering_key="key").result(PATIENCE)
        log.wait_for(2)
        kept[0].ack()
        until(lambda: stream.stats.stale == 1)
        assert (stream.stats.acked, stream.stats.in_flight) == (0, 1)
        kept[1].ack()
        until(lambda: stream.stats.acked == 1)
        kept[0].nack()
        until(lambda: stream.stats.stale == 2)
    assert len(log.all) == 2


def test_a_second_ack_is_counted_and_changes_nothing(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair(retry=SOON)

    def handle(message: Message) -> None:
        with log.handling(message):
            message.ack()
            message.ack()
            message.nack()

    with subscription.pull(handle) as stream:
        topic.publish(b"x", ordering_key="key").result(PATIENCE)
        until(lambda: stream.stats.stale == 2)
        topic.publish(b"y", ordering_key="key").result(PATIENCE)
        until(lambda: stream.stats.acked == 2)
    assert log.bodies == [b"x", b"y"]


@pytest.mark.parametrize("first", ["max", "nack"])
def test_backoff_keeps_the_place_in_the_key(room: Room, log: Deliveries, first: str) -> None:
    """Nacked ten times in a row or with a delay of its own: nothing of the key goes by."""
    topic, subscription = room.pair(retry=SOON)

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data != b"0" or message.delivery_attempt == 11:
                message.ack()
            else:
                message.nack(delay=0.01 if first == "max" else None)

    with subscription.pull(handle):
        for number in range(5):
            topic.publish(b"%d" % number, ordering_key="key")
        log.wait_for(15)
    assert log.bodies == [b"0"] * 11 + [b"1", b"2", b"3", b"4"]
