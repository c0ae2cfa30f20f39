"""Transactions that stay open in a retry partition: named in the log, with the command that ends each.

Theory. Readers of committed records don't pass the first record of an open transaction (the last stable offset). So a
transaction that never ends holds up the whole retry partition: what moved there isn't read back, its keys wait, and an
owner that takes the partition on delivers nothing of it. A killed owner's own transaction is over within 20 s, ended by
its successor or the broker. What stays for longer is a foreign producer's, or hangs: its coordinator has forgotten it,
so no time-out ends it. Ending it may throw away what a living producer is about to commit, so an operator has to do it.

Rules
1. Nothing is asked of the cluster where all that is stored was read; else one request for what is committed.
2. Each is named once, and again after `AGAIN`, as long as it stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.ports import Backend

__all__ = ["AGAIN", "LOOK", "PATIENCE", "OpenTransactions"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds between two looks.
LOOK = 3.0
#: Seconds that a transaction may be seen open: ours time out after 10, and the broker looks every 10.
PATIENCE = 20.0
#: Seconds after which one that is still open is named again.
AGAIN = 600.0


class _Seen(NamedTuple):
    #: Offset of its first record.
    start: int
    since: float
    #: When to name it.
    name_at: float


class OpenTransactions:
    """What one subscriber knows of the transactions in its retry topic; for one thread."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._clock = clock
        self._look_at = 0.0
        self._seen: dict[TopicPartition, _Seen] = {}

    def look(self, subscription: str, read: Mapping[TopicPartition, int]) -> None:
        """Looks, if it is time to. `read`: up to where each retry partition that is ours was read."""
        now = self._clock()
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
        """Partitions with an open transaction, and where its first record lies."""
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
