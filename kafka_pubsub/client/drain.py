"""How much of a topic's old layout is still to be done by a subscription: what a change of layout waits for.

Theory. A key's order is kept by one partition. Once a key moves to another, all that lies in its old one must be
finished, or its later messages overtake it. Finished is what the group's committed positions and maps say, so any
process can look, and nobody has to be asked.

Rules
1. Only messages with a key count, and only those below the barrier: others have no order to lose.
2. The retry topic is looked at after the home topic: what leaves home goes there in the same transaction. Of the
   retry topic the positions are read before its end, because a message that moves to the tail meanwhile must be
   seen at one of its places.
3. What isn't committed may be a hole (markers, compaction, aborted records). When few offsets are left they are read
   one by one; an offset that can't be read yet counts as a message.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pubsub.client.ports import Backend, RecordFetch
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core import ack_map
from kafka_pubsub.errors import NotFound
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["Drain"]

#: Offsets of a partition that are read one by one; more of them are surely messages, or will be fewer soon.
LOOK_AT = 500
#: Bytes and seconds of one read.
LOOK_BYTES = 8 * 1024 * 1024
LOOK_SECONDS = 5.0

_NOTHING = Committed(None, "")


class Drain:
    """Looks at what is left; for one thread. Close it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # None until something must be read.
        self._reader: RecordFetch | None = None

    def left(self, record: SubscriptionRecord, barrier: Mapping[int, int]) -> int:
        """How many messages of the old layout (an upper bound, if many) the subscription hasn't finished."""
        admin = self._backend.admin
        committed = admin.group_offsets(record.name, record.topic)
        home = sum(
            self._unfinished(
                TopicPartition(record.topic, number),
                committed.get(number, _NOTHING),
                record.positions.get(number, 0),
                end,
            )
            for number, end in barrier.items()
        )
        return home or self._left_in_retry(record, barrier)

    def _left_in_retry(self, record: SubscriptionRecord, barrier: Mapping[int, int]) -> int:
        retry = record.retry_topic
        if retry is None:
            return 0
        committed = self._backend.admin.group_offsets(record.name, retry.name)
        places = [TopicPartition(retry.name, number) for number in barrier]
        try:
            ends = self._backend.admin.high_watermarks(places)
        except NotFound:
            return 0  # gone with what was in it: whoever receives is told
        return sum(
            self._unfinished(
                place,
                committed.get(place.partition, _NOTHING),
                retry.positions.get(place.partition, 0),
                end,
            )
            for place, end in ends.items()
        )

    def _unfinished(self, place: TopicPartition, committed: Committed, copy: int, end: int) -> int:
        position = copy if committed.offset is None else committed.offset
        if position >= end:
            return 0
        found = ack_map.decode(committed.metadata, position) if committed.metadata else None
        runs = () if found is None else found.runs
        done = sum(max(0, min(stop, end) - max(start, position)) for start, stop in runs)
        left = end - position - done
        if left > LOOK_AT:
            return left
        finished = {offset for start, stop in runs for offset in range(max(start, position), min(stop, end))}
        return self._with_keys(place, [each for each in range(position, end) if each not in finished])

    def _with_keys(self, place: TopicPartition, offsets: list[int]) -> int:
        """How many of the offsets hold a message with a key, or may."""
        if self._reader is None:
            self._reader = self._backend.record_fetch()
        keyed = 0
        while offsets:
            found = self._reader.fetch(place, offsets, LOOK_BYTES, LOOK_SECONDS)
            seen = {record.offset() for record in found.records} | set(found.missing)
            if not seen:
                return keyed + len(offsets)
            keyed += sum(record.key() is not None for record in found.records)
            offsets = [each for each in offsets if each not in seen]
        return keyed

    def close(self) -> None:
        """Lets go of the reader."""
        if self._reader is not None:
            self._reader.close()
