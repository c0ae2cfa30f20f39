"""Reads a sample of a topic's records and checks whether their keys lie in the partitions that murmur2 gives.

Rules
1. The sample is limited: up to 16 partitions, the oldest and the newest records of each, some seconds.
2. The reader belongs to no group and changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.topics.key_places import KeyPlaces, judge

__all__ = ["sample_keys"]

#: The most partitions in a sample, spread evenly over the topic.
_PARTITIONS = 16

#: The most records from each end of a partition, and roughly the bytes of their bodies.
_RECORDS, _BYTES = 500, 1024 * 1024

#: Seconds for the whole sample, and for one request.
_SECONDS, _REQUEST_SECONDS = 5.0, 1.0


def sample_keys(backend: Backend, topic: str, partitions: int) -> KeyPlaces:
    """Reads a sample and returns where its keys lie; the result is empty if no record has a key."""
    with closing(_sampled(backend, topic, partitions)) as records:
        keyed = ((record.key(), record.partition()) for record in records)
        return judge(partitions, ((key, at) for key, at in keyed if key is not None and at is not None))


def _sampled(backend: Backend, topic: str, partitions: int) -> Generator[StoredRecord, None, None]:
    until = time.monotonic() + _SECONDS
    ends = backend.admin.last_stable_offsets(topic)
    chosen = min(partitions, _PARTITIONS)
    with closing(backend.record_fetch()) as fetch:
        for number in range(chosen):
            place = TopicPartition(topic, number * partitions // chosen)
            end = ends.get(place.partition, 0)
            if not end:
                continue
            first, _ = backend.admin.log_range(place)
            oldest = range(first, min(first + _RECORDS, end))
            newest = range(max(oldest.stop, end - _RECORDS), end)
            for offsets in (oldest, newest):
                left = until - time.monotonic()
                if left <= 0:
                    return
                yield from fetch.fetch(place, offsets, _BYTES, min(left, _REQUEST_SECONDS)).records
