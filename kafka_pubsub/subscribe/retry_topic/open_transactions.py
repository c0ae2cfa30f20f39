"""Finds transactions that stay open in a retry partition, and logs the command that ends each.

Readers of committed records don't pass the first record of an open transaction (the last stable offset). So a
transaction that never ends holds up the whole retry partition: messages that moved there aren't read back, their keys
wait, and a new owner delivers nothing of the partition. A killed owner's transaction ends within 20 s, by its
successor or the broker. One that stays open longer belongs to a foreign producer, or hangs: its coordinator has
forgotten it, so no time-out ends it. Ending it may lose records that a living producer is about to commit, so only an
operator may do it.

Rules
1. The last stable offsets are asked for only where not all stored records were read.
2. Each transaction is logged once, and again every `AGAIN` seconds while it stays open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicPartition

__all__ = ["AGAIN", "LOOK", "PATIENCE", "OpenTransactions"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds between two looks.
LOOK = 3.0
#: Seconds that a transaction may stay open unnamed: this client's time out after 10 s, and the broker checks every 10.
PATIENCE = 20.0
#: Seconds after which a transaction that is still open is logged again.
AGAIN = 600.0


class _Seen(NamedTuple):
    #: Offset of its first record.
    start: int
    since: float
    #: When to log it.
    name_at: float


class OpenTransactions:
    """The open transactions that one subscriber has seen in its retry topic; for one thread."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._clock = clock
        self._look_at = 0.0
        self._seen: dict[TopicPartition, _Seen] = {}

    @property
    def seconds(self) -> float:
        """For how long the oldest of them has been seen; 0: none is open."""
        return max((self._clock() - each.since for each in self._seen.values()), default=0.0)

    def look(self, subscription: str, read: Mapping[TopicPartition, int]) -> None:
        """Looks for open transactions if a look is due. `read`: where reading stands in each owned partition."""
        now = self._clock()
        if not read:
            self._seen = {}  # another member has the partitions
        if now < self._look_at or not read:
            return
        self._look_at = now + LOOK
        try:
            found = self._find(read)
        except PubSubError as error:
            log.debug("subscription %r: open transactions weren't looked for: %s", subscription, error)
            return
        self._seen = {place: self._met(subscription, place, start, now) for place, start in found.items()}

    def _find(self, read: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Finds partitions with an open transaction, and the offset of its first record."""
        admin = self._backend.admin
        ends = admin.high_watermarks(list(read))
        behind = {place: end for place, end in ends.items() if read[place] < end}
        found: dict[TopicPartition, int] = {}
        for topic in {place.topic for place in behind}:
            stable = admin.last_stable_offsets(topic)
            found |= {
                place: stable[place.partition]
                for place, end in behind.items()
                if place.topic == topic and stable.get(place.partition, end) < end
            }
        return found

    def _met(self, subscription: str, place: TopicPartition, start: int, now: float) -> _Seen:
        seen = self._seen.get(place)
        if seen is None or seen.start != start:
            return _Seen(start, now, now + PATIENCE)
        if now < seen.name_at:
            return seen
        self._name(subscription, place, start, now - seen.since)
        return seen._replace(name_at=now + AGAIN)

    def _name(self, subscription: str, place: TopicPartition, start: int, seconds: float) -> None:
        tool = f"kafka-transactions.sh --bootstrap-server {self._backend.address}"
        where = f"--topic {place.topic} --partition {place.partition}"
        log.error(
            "subscription %r: a transaction that began at offset %d of %s[%d] has been open for more than %.0f s. "
            "Nothing behind it is read, so messages that failed in partition %d aren't delivered again, nor the later "
            "ones of their keys; after a restart nothing of that partition is. `%s describe-producers %s` tells whose "
            "it is, `%s find-hanging --topic %s` whether it hangs. If its producer won't end it, this does: "
            "`%s abort %s --start-offset %d`",
            subscription,
            start,
            place.topic,
            place.partition,
            seconds,
            place.partition,
            tool,
            where,
            tool,
            place.topic,
            tool,
            where,
            start,
        )
