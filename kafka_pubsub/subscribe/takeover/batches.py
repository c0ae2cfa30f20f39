"""Groups the records of a read by partition for the core, and warns of keys that carry too many of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import cast

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import StoredRecord, TopicPartition, decode_ordering_key
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.takeover.hot_keys import HotKeys

__all__ = ["HotKeyWarnings", "by_number", "by_partition"]

log = logging.getLogger("kafka_pubsub.subscriber")


def by_partition(records: Sequence[StoredRecord]) -> dict[PartitionId, list[Record]]:
    """Groups the records of a read of a single topic; a read is most often that, and this is faster."""
    batches: dict[int | None, list[StoredRecord]] = {}
    current: int | None = -1
    add = list[StoredRecord]().append
    for record in records:
        number = record.partition()
        if number != current:
            current = number
            add = batches.setdefault(number, []).append
        add(record)
    found = {PartitionId(0, number or 0): each for number, each in batches.items()}
    return cast("dict[PartitionId, list[Record]]", found)


def by_number(records: Sequence[StoredRecord], layout: Layout) -> dict[PartitionId, list[Record]]:
    """Groups the records of a read by the numbers that their partitions have in the core."""
    if not layout.laned:
        return by_partition(records)
    batches: dict[PartitionId, list[StoredRecord]] = {}
    topic, partition = None, None
    add = list[StoredRecord]().append
    for record in records:
        if record.partition() != partition or record.topic() != topic:
            topic, partition = record.topic(), record.partition()
            add = batches.setdefault(layout.number(TopicPartition(topic or "", partition or 0)), []).append
        add(record)
    return cast("dict[PartitionId, list[Record]]", batches)


class HotKeyWarnings:
    """Warns when one key carries most of a topic. Not for subscriptions whose keys set no order."""

    def __init__(self, record: SubscriptionRecord) -> None:
        self._subscription, self._topic = record.name, record.topic
        self._ordered = record.options.message_ordering
        self._keys = HotKeys()

    def observe(self, batches: Iterable[Sequence[Record]]) -> None:
        """Counts the keys of the records that were read."""
        for records in batches if self._ordered else ():
            if (hot := self._keys.observe(records)) is not None:
                log.warning(
                    "subscription %r: ordering key %r carries %.0f %% of what topic %r delivers; a key's messages are "
                    "handled one at a time, so more workers don't help it: spread them over more keys",
                    self._subscription,
                    decode_ordering_key(hot.key),
                    100 * hot.share,
                    self._topic,
                )
