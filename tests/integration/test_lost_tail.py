"""A real broker whose disk has lost the end of a log, which has grown again since."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_pubsub import FailedPrecondition, Message, PubSub, RetryPolicy, Subscription
from kafka_pubsub.local import LocalKafka
from tests.support import until

#: Of a batch on disk: its first offset and the length of the rest.
_HEAD = struct.Struct(">qi")


def _lose_end(kafka: LocalKafka, topic: str, end: int) -> None:
    """Takes the records from offset `end` on out of partition 0, while the broker is down."""
    kafka.stop()
    (log,) = kafka.data_dir.glob(f"**/{topic}-0/*.log")
    data, at = log.read_bytes(), 0
    while at < len(data):
        first, length = _HEAD.unpack_from(data, at)
        if first >= end:
            break
        at += _HEAD.size + length
    os.truncate(log, at)
    kafka.start()


def _pull(
    subscription: Subscription, count: int, settle: Callable[[Message], None] = Message.ack
) -> list[bytes]:
    got: list[bytes] = []
    lock = threading.Lock()

    def handle(message: Message) -> None:
        settle(message)
        with lock:
            got.append(message.data)

    with subscription.pull(handle) as stream:
        until(lambda: len(got) >= count or stream.done(), patience=60)
    stream.result(30)
    return got


def _publish(pubsub: PubSub, prefix: str, count: int) -> None:
    for number in range(count):  # each alone, so that each is a batch
        text = f"{prefix}{number}"
        pubsub.topic("orders").publish(text.encode(), ordering_key=text).result(30)


def _prepare(pubsub: PubSub) -> Subscription:
    pubsub.create_topic("orders", partitions=1, message_ordering=True)
    return pubsub.create_subscription("billing", topic="orders", message_ordering=True, retry=RetryPolicy())


def test_a_topic_is_refused_until_an_operator_has_said_where_to_go_on(tmp_path: Path) -> None:
    with LocalKafka(tmp_path) as kafka:
        with PubSub(kafka.bootstrap) as pubsub:
            billing = _prepare(pubsub)
            _publish(pubsub, "old", 10)
            assert len(_pull(billing, 10)) == 10
        _lose_end(kafka, "orders", 5)
        with PubSub(kafka.bootstrap) as pubsub:
            _publish(pubsub, "new", 8)
            with pytest.raises(FailedPrecondition, match=r"orders\[0\] was read up to offset 9"):
                _pull(pubsub.subscription("billing"), 1)
            (lost,) = pubsub.recover_subscription("billing", start="oldest")
            assert (lost.topic, lost.start, lost.lost, lost.skipped) == ("orders", 5, 5, 0)
            got = _pull(pubsub.subscription("billing"), 8)
            assert sorted(got) == [b"new%d" % number for number in range(8)]


def test_a_retry_topic_is_refused_until_then_too(tmp_path: Path) -> None:
    with LocalKafka(tmp_path) as kafka:
        with PubSub(kafka.bootstrap) as pubsub:
            billing = _prepare(pubsub)
            _publish(pubsub, "a", 3)
            _pull(billing, 3, lambda message: message.nack(delay=5))
            # They have come back once, so the commits say how far the retry topic was read.
            _pull(billing, 3, lambda message: message.nack(delay=600))
        _lose_end(kafka, "orders.sub.billing.retry", 1)
        with PubSub(kafka.bootstrap) as pubsub:
            with pytest.raises(FailedPrecondition, match=r"retry\[0\] was read up to"):
                _pull(pubsub.subscription("billing"), 1)
            (lost,) = pubsub.recover_subscription("billing")
            assert lost.topic == "orders.sub.billing.retry"
            _publish(pubsub, "last", 1)
            assert b"last0" in _pull(pubsub.subscription("billing"), 1)
