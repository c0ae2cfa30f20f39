"""Shared by the acceptance tests: names of their own, a log of deliveries, and waiting for expected events.

Rules
1. Nothing waits for a fixed time: `until` returns as soon as the condition holds, and fails after `PATIENCE`.
2. A log notes a delivery when its handler starts, and how many handlers of a key ran at once, so a test can't
   miss a breach of order that a later message has mended.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

from kafka_pubsub import Message, PubSub, Subscription, Topic
from tests.support import until

__all__ = ["PATIENCE", "Deliveries", "Room", "all_stored", "until"]

#: Seconds; an upper bound for a slow machine, not an expectation.
PATIENCE = 60.0


def all_stored(futures: Iterable[Future[str]]) -> list[str]:
    """The message ids of futures that must all succeed."""
    some = list(futures)
    assert not wait(some, PATIENCE).not_done
    return [future.result() for future in some]


class Room:
    """Topics and subscriptions of a test, under names that no other test has."""

    def __init__(self, ps: PubSub) -> None:
        self.ps = ps
        self.name = f"a-{uuid.uuid4().hex[:12]}"
        self._made = 0

    def topic(self, **options: Any) -> Topic:
        self._made += 1
        return self.ps.create_topic(f"{self.name}-t{self._made}", **{"partitions": 4, **options})

    def subscription(self, topic: Topic, **options: Any) -> Subscription:
        """Ordered unless told otherwise."""
        self._made += 1
        return self.ps.create_subscription(
            f"{self.name}-s{self._made}", topic, **{"message_ordering": True, **options}
        )

    def pair(self, **options: Any) -> tuple[Topic, Subscription]:
        """A topic with an ordered subscription."""
        topic = self.topic()
        return topic, self.subscription(topic, **options)


class Deliveries:
    """The messages that reached handlers, in the order in which they started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.all: list[tuple[str | None, bytes]] = []
        #: Handlers that run now, by key. Empty: none runs.
        self._running: Counter[str | None] = Counter()
        self.most_at_once = 0
        #: The most handlers that a key had at once; 1 if all is well.
        self.most_of_a_key = 0

    @contextmanager
    def handling(self, message: Message) -> Iterator[None]:
        """Notes the delivery, and that its handler runs."""
        key = message.ordering_key
        with self._lock:
            self.all.append((key, message.data))
            self._running[key] += 1
            self.most_at_once = max(self.most_at_once, self._running.total())
            if key is not None:
                self.most_of_a_key = max(self.most_of_a_key, self._running[key])
        try:
            yield
        finally:
            with self._lock:
                self._running[key] -= 1

    def ack(self, message: Message) -> None:
        """A handler that notes and acks."""
        with self.handling(message):
            message.ack()

    @property
    def bodies(self) -> list[bytes]:
        """Every delivery's data."""
        return [body for _, body in self.all]

    @property
    def by_key(self) -> dict[str | None, list[bytes]]:
        """The deliveries of each key, in order."""
        found: defaultdict[str | None, list[bytes]] = defaultdict(list)
        for key, body in self.all:
            found[key].append(body)
        return dict(found)

    def first_of_each(self) -> dict[str | None, list[bytes]]:
        """The same without redeliveries: each message where its first delivery came."""
        return {key: list(dict.fromkeys(bodies)) for key, bodies in self.by_key.items()}

    def wait_for(self, count: int) -> None:
        """Waits until so many deliveries have begun."""
        until(lambda: len(self.all) >= count, f"{count} deliveries (there are {len(self.all)})")

    def wait_for_distinct(self, count: int) -> None:
        """Waits until so many different messages were delivered."""
        until(lambda: len(set(self.all)) >= count, f"{count} different messages")
