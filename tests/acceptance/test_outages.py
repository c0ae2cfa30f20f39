"""A service that handlers need is down: the subscription slows down, loses no good message, and recovers.

Twenty different messages must fail in a partition, more than are acked, before this counts as an outage; so a
partition, and keys of their own.
"""

from __future__ import annotations

import logging
import threading

import pytest

from kafka_pubsub import DeadLetterPolicy, Message, RetryPolicy
from tests.acceptance.support import Deliveries, Room, all_stored, until

MESSAGES = 200
#: Deliveries of an hour's outage, were each failure tried again at once.
FLOOD = MESSAGES * 5


def test_an_outage_does_not_empty_the_topic_into_the_dead_letters(
    room: Room, log: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kafka_pubsub.subscriber")
    dead_letter_topics = room.topic(partitions=1)
    topic = room.topic(partitions=1)
    subscription = room.subscription(
        topic,
        retry=RetryPolicy(min_backoff=0, max_backoff=0.1),
        dead_letter=DeadLetterPolicy(topic=dead_letter_topics.name, max_attempts=5),
    )
    buried = room.subscription(dead_letter_topics, message_ordering=False)
    is_up = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            if not is_up.is_set():
                raise ConnectionError("the database is down")
            message.ack()

    def said(word: str) -> bool:
        begins = f"subscription {subscription.name!r}, partition 0: {word}"
        return any(line.getMessage().startswith(begins) for line in caplog.records)

    all_stored(topic.publish(b"%d" % n, ordering_key=f"k{n}") for n in range(MESSAGES))
    with subscription.pull(handle) as stream:
        until(lambda: said("most deliveries fail"))
        before = len(log.all)
        log.wait_for(before + 3)  # the stream goes on trying, a message at a time
        is_up.set()
        until(lambda: said("deliveries succeed again"))
        until(lambda: stream.stats.acked + stream.stats.dead_lettered >= MESSAGES)
        assert before < FLOOD
        # Five attempts a message were more than enough for all of them, at full speed.
        assert stream.stats.dead_lettered <= 2
    assert set(log.bodies) == {b"%d" % n for n in range(MESSAGES)}
    assert len(buried.receive(MESSAGES, timeout=1)) <= 2
