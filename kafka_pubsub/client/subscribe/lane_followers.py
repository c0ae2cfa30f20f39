"""Finds the messages that follow one of another lane (`ps-after`), and when that one is finished.

Rules
1. A message is finished for the subscription when its offset is, and it neither waits in the retry topic nor is on its
   way there or to the dead letters; a key that has a lease may still have it.
2. A message beyond the end of its lane's log was lost with its leader, so nothing waits for it.
3. A lane that this stream doesn't read yet is about to be added: what follows a message of it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from kafka_pubsub.client.assignment.layout import Layout
from kafka_pubsub.core.events import Followed
from kafka_pubsub.core.lanes.headers import AFTER_HEADER, read_after
from kafka_pubsub.core.lanes.names import lane_of
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.records import Record
from kafka_pubsub.model import Position, StoredRecord, TopicPartition

__all__ = ["LaneFollowers"]

#: Returns whether the log of a number was read to its end, asked for after so many requests, and lacks an offset.
IsLost = Callable[[int, int, int], bool]


class _Waits(NamedTuple):
    """What a message waits for."""

    key: bytes
    place: Position
    #: The requests for ends that were made before it was read.
    requests: int


class LaneFollowers:
    """The messages of one stream that wait for messages of other lanes; each partition holds its own."""

    def __init__(self, layout: Callable[[], Layout], is_lost: IsLost) -> None:
        self._layout = layout
        self._is_lost = is_lost

    def notes(self, records: Sequence[Record], requests: int) -> dict[int, object]:
        """Returns, by offset, what the records wait for that follow one of another lane."""
        found: dict[int, object] = {}
        layout = self._layout()
        topic = layout.record.topic
        for record in cast("Sequence[StoredRecord]", records):
            key = record.key()
            if key is None:
                continue
            for name, value in record.headers() or ():
                place = read_after(value) if name == AFTER_HEADER else None
                if place is not None and topic in (place.topic, *(lane_of(place.topic) or ())):
                    found[record.offset() or 0] = _Waits(key, place, requests)
        return found

    def free(self, owned: Mapping[int, Partition]) -> Iterator[tuple[int, Followed]]:
        """Yields for each partition the messages that wait no more."""
        for number, partition in owned.items():
            if not partition.followers:
                continue
            offsets = [
                offset
                for offset, waits in partition.followers.first()
                if self._is_over(cast("_Waits", waits), owned)
            ]
            if offsets:
                yield number, Followed(offsets)

    def _is_over(self, waits: _Waits, owned: Mapping[int, Partition]) -> bool:
        layout = self._layout()
        topic, partition, offset = waits.place
        if topic not in layout.topics or partition >= layout.record.partitions:
            return False  # rule 3
        number = layout.number(TopicPartition(topic, partition))
        found = owned.get(number)
        if found is None:
            return False
        return _is_finished(found, waits.key, offset) or self._is_lost(number, offset, waits.requests)


def _is_finished(partition: Partition, key: bytes, offset: int) -> bool:
    offsets, retries = partition.offsets, partition.retry_partition.retries
    if offset in offsets.unfinished or not retries.caught_up:
        return False
    if offset >= offsets.position and not any(start <= offset < end for start, end in offsets.known):
        return False
    moving = retries.parking.moving.get(key, ())
    waits = retries.parking.lines.first_of(key, offset) is not None
    return not waits and offset not in moving and key not in partition.queues.blocked
