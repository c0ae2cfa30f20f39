"""A handler that writes messages down, and acks, nacks or keeps some of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from kafka_pubsub import Message
from tests.support import until

__all__ = ["Came", "Handler"]

#: Data, priority, durable, attempt.
Came = tuple[bytes, int, bool, int]


class Handler:
    """Acks what `conduct` doesn't name; `conduct` gives what is done with a message of this data."""

    def __init__(self, conduct: Mapping[bytes, Callable[[Message], None]] | None = None) -> None:
        self._conduct = conduct or {}
        self._lock = threading.Lock()
        self.came: list[Came] = []

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.came.append((message.data, message.priority, message.durable, message.delivery_attempt))
        self._conduct.get(message.data, Message.ack)(message)

    @property
    def data(self) -> list[bytes]:
        """The data of what came, each delivery."""
        return [each[0] for each in self.came]

    def until(self, count: int) -> None:
        """Waits for so many deliveries."""
        until(lambda: len(self.came) >= count)
