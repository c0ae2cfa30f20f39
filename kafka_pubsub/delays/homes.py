"""The home topics of delayed messages, as publishers name them, and as a router and a replay publish to them.

Rules
1. Which topics there are says the catalog alone, read to its end: what a broker says of a topic is no answer to that.
   It is read once for all topics, and counts for `KNOWN_S` seconds, less than publishers may take to notice that a
   topic is repartitioned (`repartition/repartition.py`). Before a topic counts as gone it is read again.
2. Keys are spread over as many partitions as the catalog says, as publishers spread them. Where another tool has added
   partitions, keys stay where they were until the topic is repartitioned.
3. While a topic is being repartitioned no message with a key may go there (I12).
4. A message goes to the topic that it was published to, never to another one of that name: its address holds the
   topic's id. An address without one (of an older version) names whichever topic has the name.
5. The messages of a causal topic come from its sequencer only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from kafka_pubsub.config import LaneTopic, TopicRecord
from kafka_pubsub.delays.records import address, parts_of
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, FailedPrecondition
from kafka_pubsub.lane_names import topic_of
from kafka_pubsub.log.clocks import wall_time
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.topics.catalog_changes import repartition_call

__all__ = ["KNOWN_S", "Home", "Homes"]

#: Seconds that the catalog counts; for how long when it can't be read; and until it is tried again then.
KNOWN_S = 1.0
_UNREAD_S, _TRY_AGAIN_S = 30.0, 10.0
#: Keys of which the partition is remembered: to work one out takes as long as to decode a message.
_KEYS = 5000


class Home(NamedTuple):
    """A home topic.

    `held`: why no message with a key may go there now, and without `partitions` none at all; empty: they may.
    `refused`: why none ever may; empty: they may. Without `partitions` it is gone.
    """

    name: str
    partitions: int = 0
    held: str = ""
    refused: str = ""


class Homes:
    """The home topics, as the catalog says."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._topics: Mapping[str, TopicRecord] = {}
        # When the catalog was read, and when it is read again (monotonic seconds).
        self._read_at, self._look_at = float("-inf"), float("-inf")
        # When the work began that is being done: what counts as gone was looked for since.
        self._round_at = 0.0
        # By address, as long as the catalog doesn't change.
        self._known: dict[str, Home] = {}
        # The addresses that messages were held for.
        self._holding: set[str] = set()
        self._spread = 0
        # The same keys come again and again.
        self._partition_of = lru_cache(_KEYS)(partition_of)

    def now(self) -> float:
        """Returns the seconds since the epoch, by the clock of the cluster."""
        return wall_time(self._backend.clock)

    @property
    def is_fresh(self) -> bool:
        """Whether the next question makes no request."""
        return time.monotonic() < self._look_at

    def forget(self) -> None:
        """The next question reads the catalog."""
        self._look_at = float("-inf")

    def begin(self) -> None:
        """Other messages are to be dealt with: what counts as gone is looked for again, once for all of them."""
        self._round_at = time.monotonic()

    def address(self, name: str) -> str:
        """Returns the name of a topic or lane with its id, as far as that is known."""
        try:
            self._look()
        except (BrokerUnavailable, DeadlineExceeded):
            self._look_at = time.monotonic() + _TRY_AGAIN_S  # no call waits for the same answer again
        try:
            found = self._find(name)
        except FailedPrecondition:
            return name
        return name if found is None else address(name, found[1].topic_id)

    def find(self, home: str) -> Home:
        """Returns the topic of an address."""
        self._look()
        found = self._known.get(home) or self._understand(home)
        if found.refused and self._read_at < self._round_at:
            self.forget()
            self._look()
            found = self._known.get(home) or self._understand(home)
        self._known[home] = found
        (self._holding.add if found.held else self._holding.discard)(home)
        return found

    def partition(self, home: Home, key: bytes | None) -> int:
        """Returns to which partition of the topic a message goes."""
        if key is not None:
            return self._partition_of(key, home.partitions)
        self._spread += 1
        return self._spread % home.partitions

    def held(self) -> list[str]:
        """Returns for each topic that messages with a key may not go to, of those that were asked for, why."""
        if not self._holding:
            return []
        return sorted({found.held for home in list(self._holding) if (found := self.find(home)).held})

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        try:
            topics = self._backend.catalog.topics()
        except (BrokerUnavailable, DeadlineExceeded):
            if time.monotonic() > self._read_at + _UNREAD_S:
                raise
            self._look_at = time.monotonic() + _TRY_AGAIN_S
            return
        if topics is not self._topics:
            self._topics, self._known = topics, {}
        self._read_at, self._look_at = now, time.monotonic() + KNOWN_S

    def _find(self, name: str) -> tuple[TopicRecord, TopicRecord | LaneTopic] | None:
        """Returns the topic's record, and what says the id: itself or the lane."""
        record = self._topics.get(topic_of(name))
        if record is None or record.name == name:
            return None if record is None else (record, record)
        lane = record.lane(name)
        return None if lane is None else (record, lane)

    def _understand(self, home: str) -> Home:
        name, topic_id = parts_of(home)
        try:
            found = self._find(name)
        except FailedPrecondition as unreadable:
            return Home(name, held=unreadable.message)
        if found is None:
            return Home(name, refused=f"home topic {name!r} doesn't exist any more")
        record, kafka_topic = found
        if record.options.causal:
            reason = f"home topic {name!r} is causal: its messages come from its sequencer only"
            return Home(name, record.options.partitions, refused=reason)
        if record.state != "ready" or not kafka_topic.topic_id:
            return Home(name, held=f"topic {name!r} is being made or deleted: delayed messages wait")
        if topic_id not in ("", kafka_topic.topic_id):
            reason = f"home topic {name!r} was deleted; the present one of that name was made later"
            return Home(name, refused=reason)
        count, change = record.options.partitions, record.repartition
        return Home(name, count, "" if change is None else _growing(record.name, count, change.partitions))


def _growing(topic: str, count: int, partitions: int) -> str:
    return (
        f"topic {topic!r} is being repartitioned from {count} to {partitions} partitions: delayed messages with a key "
        "wait until that is through, and so does what is due after them in the same partitions. If that call has "
        f"stopped, {repartition_call(topic, partitions)} goes on with it"
    )
