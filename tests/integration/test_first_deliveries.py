"""The first message of a stream comes with the assignment, and isn't thrown away and fetched again."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

from kafka_pubsub import Message, PubSub

#: Seconds; a fetch that finds nothing takes 0.5.
SOON = 0.4
#: Tries, and how many of them must be quick: the machine may be busy.
TRIES, QUICK = 8, 6


def test_a_message_that_waits_is_delivered_soon_after_the_assignment(kafka: Any) -> None:
    seconds: list[float] = []
    with PubSub(kafka.bootstrap) as ps:
        for _ in range(TRIES):
            name = f"first-{uuid.uuid4().hex[:12]}"
            topic = ps.create_topic(name, partitions=1)
            subscription = ps.create_subscription(name, name, message_ordering=True)
            for number in range(20):
                topic.publish(b"x", ordering_key=f"k{number}").result(60)
            seconds.append(first_delivery(subscription))
    assert sum(each < SOON for each in seconds) >= QUICK, seconds


def first_delivery(subscription: Any) -> float:
    """Returns the seconds from `pull()` to the first callback."""
    came = threading.Event()

    def note(message: Message) -> None:
        came.set()
        message.ack()

    began = time.monotonic()
    with subscription.pull(note):
        assert came.wait(60)
        return time.monotonic() - began
