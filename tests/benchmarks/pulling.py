"""Pulling in a process of its own until SIGTERM ends it in peace, and a callback that notes its messages."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable

from kafka_pubsub import Message, PubSub
from tests.benchmarks import journal
from tests.benchmarks.data import head

__all__ = ["noting", "pull_until_ended"]

CLOSE_TIMEOUT_S = 60.0


def pull_until_ended(bootstrap: str, group: str, handle: Callable[[Message], None]) -> None:
    """Pulls until SIGTERM; a stream that ends before raises its reason, so that the process ends with it."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with PubSub(bootstrap) as pubsub:
        stream = pubsub.subscription(group).pull(handle)
        # Woken twice a second, so that a stream that died is noticed.
        while not ended.wait(0.5):
            if stream.done():
                stream.result(timeout=0)
                break
        stream.close(timeout=CLOSE_TIMEOUT_S)


def noting(
    note: Callable[[int, int, int, int], None], nacks: float, ack: Callable[[Message, int, int], object]
) -> Callable[[Message], None]:
    """A callback that notes every start, ack and nack before the verb; a share of first deliveries is nacked.

    `ack` gets the message, its key and its place.
    """
    chance = random.Random(os.getpid()).random

    def handle(message: Message) -> None:
        key, place, _ = head(message.data)
        note(journal.START, key, place, time.time_ns())
        if message.delivery_attempt == 1 and chance() < nacks:
            note(journal.NACK, key, place, time.time_ns())
            message.nack()
            return
        note(journal.ACK, key, place, time.time_ns())
        ack(message, key, place)

    return handle
