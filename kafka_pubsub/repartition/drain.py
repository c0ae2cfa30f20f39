"""Counts the messages of a topic's old layout that a subscription hasn't finished; a repartition waits for them.

A key's messages are delivered in order because they are in one partition. Before a key moves to another partition, all
its messages in the old one must be finished, or later messages overtake them. The group's committed positions and
metadata record what is finished, so any process can count the rest without asking the streams.

Rules
1. Only messages with a key count: others have no order to lose. In the home topic only those below the barrier count.
2. The home topic is read before the retry topic, because a transaction moves a message from one to the other. The retry
   topic's positions are read before its end, so that a message that moves to that end meanwhile is seen at least once.
3. An offset that isn't finished may hold no message (transaction markers, compaction, aborted records). So when few
   offsets are left, they are read; an offset that can't be read yet counts as a message. In the retry topic more
   offsets are read while only unreadable records are found: another program may have written thousands.
4. An unreadable record has no origin and so no order, but a newer client may be able to read it: it counts, and is
   named. A checkpoint has no key and doesn't count; it records what is finished (`checkpoint_reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import NotFound
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import Committed, Run, StoredRecord, TopicPartition
from kafka_pubsub.subscribe.formats import record as retry_record
from kafka_pubsub.subscribe.formats.record import NO_MESSAGES, Broken
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import (
    finished_at_home,
    finished_runs,
    gaps,
    offsets_of,
)

__all__ = ["Drain", "Left", "UnreadableRecord"]

#: The most offsets of a partition that are read; if there are more, the number of offsets is the count.
LOOK_AT = 500
#: Bytes and seconds of one read.
LOOK_BYTES = 8 * 1024 * 1024
LOOK_SECONDS = 5.0
#: The most unreadable records that are named.
NAMED = 10

_NOTHING = Committed(None, "")


@dataclass(frozen=True)
class UnreadableRecord:
    """A record with a key in a retry topic that can't be decoded as a message; `reason` says why."""

    topic: str
    partition: int
    offset: int
    reason: str


class Left(NamedTuple):
    """The number of unfinished messages of an old layout.

    `total`: messages with a key, an upper bound if there are many. `unreadable`: how many of them can't be decoded.
    `named`: the first of those.
    """

    total: int = 0
    unreadable: int = 0
    named: Sequence[UnreadableRecord] = ()

    @property
    def stuck(self) -> bool:
        """True if only unreadable records are left."""
        return 0 < self.total == self.unreadable


class Drain:
    """Counts unfinished messages; for one thread. Close it after use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # None until records must be read.
        self._reader: RecordFetch | None = None

    def left(self, record: SubscriptionRecord, barrier: Mapping[int, int]) -> int:
        """Returns the number of messages of the old layout that the subscription hasn't finished; see `Left`."""
        return self.look(record, barrier).total

    def look(self, record: SubscriptionRecord, barrier: Mapping[int, int]) -> Left:
        """Counts the messages of the old layout that the subscription hasn't finished."""
        admin = self._backend.admin
        committed = admin.group_offsets(record.name, record.topic)
        home = sum(
            self._left_at_home(
                TopicPartition(record.topic, number),
                self._left_of(record, number, committed.get(number, _NOTHING), end),
            )
            for number, end in barrier.items()
        )
        return Left(home) if home else self._left_in_retry(record, barrier)

    def _left_of(self, record: SubscriptionRecord, number: int, stored: Committed, end: int) -> Sequence[Run]:
        """Returns the runs of offsets of a home partition below `end` that aren't finished."""
        position = record.positions.get(number, 0) if stored.offset is None else stored.offset
        retry = record.retry_topic
        beside = None if retry is None else TopicPartition(retry.name, number)
        return gaps(position, finished_at_home(self._backend, beside, stored), end)

    def _left_at_home(self, place: TopicPartition, left: Sequence[Run]) -> int:
        if _length(left) > LOOK_AT:
            return _length(left)
        records, unseen = self._read(place, offsets_of(left))
        return unseen + sum(record.key() is not None for record in records)

    def _left_in_retry(self, record: SubscriptionRecord, barrier: Mapping[int, int]) -> Left:
        retry = record.retry_topic
        if retry is None:
            return Left()
        committed = self._backend.admin.group_offsets(record.name, retry.name)
        places = [TopicPartition(retry.name, number) for number in barrier]
        try:
            ends = self._backend.admin.high_watermarks(places)
        except NotFound:
            return Left()  # the topic and its messages are gone: the streams report that
        found = []
        for place, end in ends.items():
            number = place.partition
            stored, copy = committed.get(number, _NOTHING), retry.positions.get(number, 0)
            runs = finished_runs(self._fetch(), place, stored, end)
            left = gaps(copy if stored.offset is None else stored.offset, runs, end)
            found.append(self._left_beside(record, place, left, barrier[number]))
        return Left(
            sum(each.total for each in found),
            sum(each.unreadable for each in found),
            [one for each in found for one in each.named][:NAMED],
        )

    def _left_beside(
        self, record: SubscriptionRecord, place: TopicPartition, left: Sequence[Run], barrier: int
    ) -> Left:
        messages = unreadable = 0
        named: list[UnreadableRecord] = []
        offsets = offsets_of(left)
        while page := list(islice(offsets, LOOK_AT)):
            records, unseen = self._read(place, page)
            messages += unseen
            for each in records:
                flaw = None if each.key() is None else self._flaw(record, each, place.partition, barrier)
                messages += each.key() is not None and flaw is None
                unreadable += flaw is not None
                if flaw is not None and len(named) < NAMED:
                    named.append(UnreadableRecord(*place, each.offset() or 0, flaw))
            if messages and _length(left) > LOOK_AT:
                return Left(_length(left), unreadable, named)  # rule 3: there is no need to read them all
        return Left(messages + unreadable, unreadable, named)

    def _flaw(self, record: SubscriptionRecord, found: StoredRecord, number: int, barrier: int) -> str | None:
        """Returns why a record of the retry topic isn't a message; None: it is one, or a record of ours."""
        message = retry_record.read(found, record.topic, record.topic_id, number)
        if isinstance(message, Broken):
            return message.reason
        origin = message.info.origin
        if message.info.why in NO_MESSAGES or origin < barrier:
            return None
        home = TopicPartition(record.topic, number)
        end = self._backend.admin.high_watermarks([home])[home]
        return (
            None
            if origin < end
            else f"its origin, offset {origin}, lies beyond the end of {record.topic}, {end}"
        )

    def _read(self, place: TopicPartition, wanted: Iterable[int]) -> tuple[Sequence[StoredRecord], int]:
        """Reads the records at these offsets; also returns the number of offsets that can't be read yet."""
        fetch = self._fetch()
        records: list[StoredRecord] = []
        offsets = list(wanted)
        while offsets:
            found = fetch.fetch(place, offsets, LOOK_BYTES, LOOK_SECONDS)
            seen = {record.offset() for record in found.records} | set(found.missing)
            if not seen:
                break
            records += found.records
            offsets = [each for each in offsets if each not in seen]
        return records, len(offsets)

    def _fetch(self) -> RecordFetch:
        if self._reader is None:
            self._reader = self._backend.record_fetch()
        return self._reader

    def close(self) -> None:
        """Closes the reader."""
        if self._reader is not None:
            self._reader.close()


def _length(runs: Sequence[Run]) -> int:
    return sum(stop - start for start, stop in runs)
