"""The home topics of delayed messages, as a router and a replay of its dead letters publish to them.

Rules
1. Keys are spread over as many partitions as the catalog says, as publishers spread them. Where another tool has added
   partitions, keys stay where they were until the topic is repartitioned.
2. While a topic is being repartitioned no message with a key may go there (I12). What is known of a topic counts for
   `KNOWN_S` seconds, less than publishers may take to notice (`client/admin/repartition.py`).
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import NamedTuple

from kafka_pubsub.client.admin.catalog_changes import repartition_call
from kafka_pubsub.client.clocks import wall_time
from kafka_pubsub.core.partitioner import partition_of
from kafka_pubsub.errors import FailedPrecondition, NotFound
from kafka_pubsub.ports import Backend

__all__ = ["KNOWN_S", "Home", "Homes"]

#: Seconds that what is known of a topic counts; while it is being repartitioned, `_SOON`.
KNOWN_S = 30.0
_SOON = 1.0
#: Keys of which the partition is remembered: to work one out takes as long as to decode a message.
_KEYS = 5000


class Home(NamedTuple):
    """A home topic. `held`: why no message with a key may go there now; empty: they may."""

    partitions: int
    held: str = ""


class Homes:
    """The home topics, as they were when last looked at."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # Until when it counts, and the topic; None: there is no such topic.
        self._known: dict[str, tuple[float, Home | None]] = {}
        # The topics of `_known` that were being repartitioned.
        self._growing: set[str] = set()
        self._spread = 0
        # The same keys come again and again.
        self._partition_of = lru_cache(_KEYS)(partition_of)

    def now(self) -> float:
        """Returns the seconds since the epoch, by the clock of the cluster."""
        return wall_time(self._backend.clock)

    def find(self, name: str) -> Home | None:
        """Returns the topic; None: there is no such topic."""
        until, home = self._known.get(name, (0.0, None))
        return home if time.monotonic() < until else self._look(name)

    def partition(self, name: str, key: bytes | None) -> int | None:
        """Returns where a message of the topic goes; None: there is no such topic."""
        home = self.find(name)
        if home is None:
            return None
        if key is not None:
            return self._partition_of(key, home.partitions)
        self._spread += 1
        return self._spread % home.partitions

    def held(self) -> list[str]:
        """Returns for each topic that messages with a key may not go to, of those that were asked for, why."""
        homes = [self.find(name) for name in sorted(self._growing)] if self._growing else []
        return [home.held for home in homes if home is not None]

    def _look(self, name: str) -> Home | None:
        home = self._ask(name)
        held = home is not None and bool(home.held)
        self._known[name] = time.monotonic() + (_SOON if held else KNOWN_S), home
        (self._growing.add if held else self._growing.discard)(name)
        return home

    def _ask(self, name: str) -> Home | None:
        # Before the topic itself: its record says first that it will grow.
        topics = self._backend.catalog.topics()
        try:
            info = self._backend.admin.topic(name)
        except NotFound:
            return None
        try:
            record = topics.get(name)
        except FailedPrecondition as unreadable:
            return Home(info.partitions, unreadable.message)
        if record is None or record.topic_id != info.topic_id:
            return Home(info.partitions)
        count, change = record.options.partitions, record.repartition
        if change is None:
            return Home(count)
        return Home(
            count,
            f"topic {name!r} is being repartitioned from {count} to {change.partitions} partitions: delayed messages "
            "with a key wait until that is through, and so does what is due after them in the same partitions. If that "
            f"call has stopped, {repartition_call(name, change.partitions)} goes on with it",
        )
