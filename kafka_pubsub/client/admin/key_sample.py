"""Looks at some of a topic's records, to tell whether its keys lie where murmur2 puts them.

Rules
1. The sample is bounded: some partitions, the oldest and the newest records of each, some seconds.
2. The reader is outside of any group and changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

from kafka_pubsub.core.key_places import KeyPlaces, judge
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.ports import Backend

__all__ = ["sample_keys"]

#: The most partitions in a sample, spread over all.
_PARTITIONS = 16

#: Records of each end of a partition, and the bytes of their bodies, roughly.
_RECORDS, _BYTES = 500, 1024 * 1024

#: Seconds for all, and for one request.
_SECONDS, _REQUEST_SECONDS = 5.0, 1.0


def sample_keys(backend: Backend, topic: str, partitions: int) -> KeyPlaces:
    """The keys of a sample; of nothing where there are no records with a key."""
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
