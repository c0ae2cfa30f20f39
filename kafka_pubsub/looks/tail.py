"""Reads the newest messages of a topic and its lanes, and those that come, without a group.

Rules
1. Messages of a partition come in its order. Between partitions the older one comes first among those that are read
   together.
2. Offsets hold no message where a transaction ended, or where records were deleted. So a partition is read backwards,
   in steps that double, until there are enough messages.
3. Lanes that are made, and partitions that are added meanwhile, are read from their start.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from kafka_pubsub.config import TopicRecord
from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition, InvalidArgument
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.looks.message import NoLease
from kafka_pubsub.model import Message, StoredRecord, TopicPartition
from kafka_pubsub.subscribe.dead_letters.scan import read_all
from kafka_pubsub.topics.topics import TopicAdmin

__all__ = ["PAUSE", "Tail", "tail_of"]

#: Seconds between two looks of those that follow a topic.
PAUSE = 0.2
#: Bytes of one request, and seconds for the question where the logs end.
_BYTES, _SECONDS = 1024 * 1024, 5.0


def tail_of(topics: TopicAdmin, name: str) -> Tail:
    """Returns a reader of the newest messages of a topic."""
    return Tail(topics.backend, lambda: topics.record(name))


class Tail:
    """The end of one topic. `look_up` returns the topic's record as it is now; it raises `NotFound` if it is gone."""

    def __init__(self, backend: Backend, look_up: Callable[[], TopicRecord]) -> None:
        self._backend, self._look_up = backend, look_up
        self._sinks: dict[str, NoLease] = {}
        #: Where each partition is read on, and the id of the topic that has these offsets.
        self._next: dict[TopicPartition, int] = {}
        self._topic_id = ""
        self._fetch = backend.record_fetch()

    def newest(self, max_messages: int) -> list[Message]:
        """Returns the newest messages, the oldest of them first; `more` goes on behind them."""
        if max_messages < 0:
            raise InvalidArgument(f"max_messages must not be negative, not {max_messages!r}")
        places = self._places()
        ends = self._backend.admin.readable_ends(places, _SECONDS)
        if silent := set(places) - set(ends):
            names = ", ".join(sorted(f"{place.topic}[{place.partition}]" for place in silent))
            raise BrokerUnavailable(
                f"no broker says in {_SECONDS:g} s where these logs end: {names}; try again"
            )
        self._next = dict(ends)
        if not max_messages:
            return []
        found = [self._last(place, end, max_messages) for place, end in ends.items() if end]
        return list(self._merged(found))[-max_messages:]

    def more(self) -> Iterator[Message]:
        """Yields the messages that have come since; a partition whose leader is silent waits for the next call."""
        ends = self._backend.admin.readable_ends(self._places(), _SECONDS)
        come = {place: end for place, end in ends.items() if end > self._next.get(place, 0)}
        yield from self._merged([self._since(place, end) for place, end in come.items()])

    def close(self) -> None:
        """Closes the connection."""
        self._fetch.close()

    def read(self, max_messages: int, *, follow: bool) -> Iterator[Message]:
        """Yields the newest messages, with `follow` those that come as well, for ever; then closes."""
        with closing(self):
            yield from self.newest(max_messages)
            while follow:
                yield from self.more()
                time.sleep(PAUSE)

    def _places(self) -> list[TopicPartition]:
        record = self._look_up()
        if self._topic_id not in ("", record.topic_id):
            raise FailedPrecondition(f"topic {record.name!r} was deleted and made again: look at it anew")
        self._topic_id = record.topic_id
        rules = record.lane_rules
        home, reader = Lane(rules.default, True) if rules.any else Lane(0, True), self._backend.records
        self._sinks[record.name] = NoLease(home, reader)
        self._sinks |= {lane.name: NoLease(lane.lane, reader) for lane in record.lanes if lane.topic_id}
        partitions = range(record.options.partitions)
        return [TopicPartition(topic, number) for topic in self._sinks for number in partitions]

    def _last(self, place: TopicPartition, end: int, count: int) -> list[StoredRecord]:
        """Returns the last records of a partition, `count` at most."""
        start, _ = self._backend.admin.log_range(place)
        records: list[StoredRecord] = []
        at, step = end, count
        while at > start and len(records) < count:
            before = range(max(start, at - step), at)
            records = [*read_all(self._fetch, place, list(before), _BYTES), *records]
            at, step = before.start, 2 * step
        return records[-count:]

    def _since(self, place: TopicPartition, end: int) -> Iterator[StoredRecord]:
        for record in read_all(self._fetch, place, list(range(self._next.get(place, 0), end)), _BYTES):
            yield record
            self._next[place] = (record.offset() or 0) + 1
        self._next[place] = end

    def _merged(self, partitions: Iterable[Iterable[StoredRecord]]) -> Iterator[Message]:
        for record in heapq.merge(*partitions, key=lambda each: each.timestamp()[1]):
            yield Message(record, self._sinks[record.topic() or ""])
