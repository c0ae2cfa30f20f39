"""Pulling in a process of its own until SIGTERM ends it in peace."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from kafka_pubsub import Message, PubSub

__all__ = ["pull_until_ended"]

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
