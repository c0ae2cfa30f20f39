"""Reads the unfinished messages of a subscription, from the home topic and from the retry topic, without its group.

Rules
1. Positions are read before ends, so a message that moves meanwhile is seen at one place at least. If it is seen at
   both, the retry topic counts, and there the later record.
2. Messages of a partition come in the order of their offsets in the home topic, those in the retry topic too. Between
   partitions and lanes the older one comes first.
3. All messages of a retry partition are read, because they lie there in no order; up to the limit are kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import closing
from itertools import islice

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.log.clocks import moment
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.looks.message import PeekedMessage, Progress
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.dead_letters.scan import read_all
from kafka_pubsub.subscribe.formats.record import FOREVER, RetryRecord
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import finished_at_home, gaps, offsets_of
from kafka_pubsub.subscribe.retry_topic.key_states import RetryContents, noted
from kafka_pubsub.subscribe.retry_topic.layout import Layout

__all__ = ["peek"]

#: Records and bytes of one request: each partition with unfinished messages holds one answer.
_AT_ONCE, _BYTES = 500, 1024 * 1024


def peek(backend: Backend, record: SubscriptionRecord, max_messages: int | None) -> Iterator[PeekedMessage]:
    """Yields up to `max_messages` (None: all) unfinished messages by rule 2; reads while you iterate."""
    if max_messages is not None and max_messages < 1:
        raise InvalidArgument(f"max_messages must be at least 1, not {max_messages!r}")
    layout = Layout(record, backend.catalog.topics().get(record.topic))
    return _messages(backend, layout, max_messages)


def _messages(backend: Backend, layout: Layout, limit: int | None) -> Iterator[PeekedMessage]:
    with closing(backend.record_fetch()) as fetch:
        views = [
            _View(backend, view, layout.lane(PartitionId(index, 0)), fetch, limit)
            for index, view in layout.views.items()
        ]
        partitions = (view.partition(number) for view in views for number in range(layout.record.partitions))
        yield from islice(heapq.merge(*partitions, key=lambda each: each.publish_time), limit)


class _View:
    """What is unfinished in one lane of the topic, or in the topic without lanes."""

    def __init__(
        self,
        backend: Backend,
        record: SubscriptionRecord,
        lane: Lane,
        fetch: RecordFetch,
        limit: int | None,
    ) -> None:
        self._backend, self._record, self._lane, self._fetch = backend, record, lane, fetch
        self._limit = limit
        self._room = RetryContents(backend, record, fetch)
        self._ends = backend.admin.last_stable_offsets(record.topic)

    def partition(self, number: int) -> Iterator[PeekedMessage]:
        """Yields the unfinished messages of a partition by their offsets in the home topic."""
        waiting = {each.offset(): each for each in self._room.messages(number)}
        first = sorted(waiting) if self._limit is None else heapq.nsmallest(self._limit, waiting)
        leased = frozenset(noted(self._room.positions.get(number)))
        yield from heapq.merge(
            (self._waiting(waiting[offset], leased) for offset in first),
            (each for each in self._at_home(number) if each.offset not in waiting),
            key=lambda each: each.offset,
        )

    def _waiting(self, message: RetryRecord, leased: frozenset[int]) -> PeekedMessage:
        info = message.info
        state: Progress = "waiting"
        if message.retry_offset in leased:
            state = "leased"
        elif info.due >= FOREVER:
            state = "parked"
        due = moment(info.due) if state == "waiting" and info.due else None
        return PeekedMessage(message, self._lane, info.attempt, state, due, self._backend.records)

    def _at_home(self, number: int) -> Iterator[PeekedMessage]:
        place, end = TopicPartition(self._record.topic, number), self._ends.get(number, 0)
        stored = self._room.home.get(number, Committed(None, ""))
        begun = self._record.positions.get(number, 0) if stored.offset is None else stored.offset
        if begun >= end:
            return
        retry = self._record.retry_topic
        beside = None if retry is None else TopicPartition(retry.name, number)
        start = max(begun, self._backend.admin.log_range(place)[0])
        runs = finished_at_home(self._backend, beside, stored)
        leased = frozenset(noted(stored))
        wanted = offsets_of(gaps(start, runs, end))
        while page := list(islice(wanted, _AT_ONCE)):
            for record in read_all(self._fetch, place, page, _BYTES):
                state: Progress = "leased" if record.offset() in leased else "ready"
                yield PeekedMessage(record, self._lane, state=state, records=self._backend.records)
