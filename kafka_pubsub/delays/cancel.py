"""Cancelling a delayed message.

Theory. The id of a delayed message is the place at which it came in. The message is looked for where it may wait: in
the log of ingest, then in the tiers, the largest first, because that is its way. Then a request is written to ingest,
which takes the same way. It counts if the message is due after the time at which the request came in. That is in the
log as soon as the request is, so the answer needs no router.

Rules
1. True means that the message will not be delivered. False means that it is at home, or will be.
2. Times are those of the log: at the committed position of ingest the time is that of the commit, and each record
   behind it may raise it by its stamp. A record without a stamp came in with the first one behind it that has one.
3. If the router has trimmed what is read here, the search begins again. Position and time are taken anew just before
   the request is sent, and routers keep what they have handled for a while, so that the request can be read.
4. If it is gone all the same, and the message was due by then, the answer isn't known: `DeadlineExceeded`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from kafka_pubsub.delays.ingest import due_of
from kafka_pubsub.delays.layout import GROUP, INGEST, DelayLayout, tier_topic
from kafka_pubsub.delays.progress import IngestProgress, parse_ingest, parse_tier
from kafka_pubsub.delays.records import (
    CANCEL_HEADER,
    DELAY_HEADER,
    DelayCancel,
    decode_delayed,
    decode_request,
    encode_cancel,
    parts_of,
)
from kafka_pubsub.delays.stamps import stamp_of
from kafka_pubsub.delays.topics import DelayTopics
from kafka_pubsub.delays.values import Came
from kafka_pubsub.errors import DeadlineExceeded, InvalidArgument
from kafka_pubsub.lane_names import topic_of
from kafka_pubsub.log.partitioner import key_into
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import Header, StoredRecord, TopicPartition
from kafka_pubsub.subscribe.dead_letters.scan import AT_ONCE, read_all

__all__ = ["cancel_delayed", "parse_id"]

#: Seconds between two looks for a record.
_LOOK = 0.05


class _Trimmed(Exception):
    """The router has deleted what is being read: it is handled."""


def cancel_delayed(
    backend: Backend,
    topics: DelayTopics,
    send: Callable[[bytes, Header, int], int],
    home: str | None,
    message_id: str,
    timeout: float,
) -> bool:
    """Cancels a delayed message of the topic `home` (None: of any); returns whether it was in time.

    `send` writes a request with this key and header to ingest, whose keys are spread over so many partitions, and
    returns its offset.
    """
    topic, partition, offset = parse_id(message_id)
    layout = topics.find()
    if topic != INGEST or layout is None or partition >= layout.partitions:
        return False
    fetch = backend.record_fetch()
    try:
        search = _Search(backend, fetch, layout, partition, time.monotonic() + timeout)
        found = search.find(offset)
        if found is None:
            return False
        name = parts_of(found.home)[0]
        if home not in (None, name, topic_of(name)):
            raise InvalidArgument(
                f"message_id: {message_id!r} is a message of topic {name!r}, not of {home!r}"
            )
        request = CANCEL_HEADER, encode_cancel(DelayCancel(found.due, offset))
        search.begin()
        sent = send(key_into(partition, layout.partitions), request, layout.partitions)
        return search.counts(sent, found.due)
    finally:
        fetch.close()


class _Found(NamedTuple):
    """A message that waits: where it goes, and when."""

    home: str
    due: int


class _Search:
    """Reads one partition of ingest, and of the tiers."""

    def __init__(
        self, backend: Backend, fetch: RecordFetch, layout: DelayLayout, partition: int, deadline: float
    ) -> None:
        self._admin, self._fetch, self._layout = backend.admin, fetch, layout
        self._partition, self._deadline = partition, deadline
        self._ingest = TopicPartition(INGEST, partition)
        #: From where ingest is read on, and the time there.
        self._next = self._time = 0

    def find(self, offset: int) -> _Found | None:
        """Returns the message that came in at the offset; None: it doesn't wait any more."""
        while True:
            with suppress(_Trimmed):
                self.begin()
                found = self._find_in_ingest(offset) or self._find_in_tiers(offset)
                return None if found is None or found.due <= self._time else found

    def counts(self, sent: int, due: int) -> bool:
        """Returns whether a request at the offset `sent` came in before its message was due."""
        try:
            while True:
                for record in self._read_on():
                    if self._follow(record) and (record.offset() or 0) >= sent:
                        return due > self._time
        except _Trimmed:
            self.begin()
            if due > self._time:
                return True
            raise _unanswered() from None

    def begin(self) -> None:
        """Goes to the committed position of ingest."""
        committed = self._committed(INGEST)
        start = self._admin.log_range(self._ingest)[0]
        progress = parse_ingest(*committed) if committed else IngestProgress(start, start)
        self._next, self._time = max(start, progress.position), progress.time or 0

    def _find_in_ingest(self, offset: int) -> _Found | None:
        """Reads all of ingest; if the message is there, to the stamp that says when it came in."""
        end = self._admin.last_stable_offsets(INGEST)[self._partition]
        found: _Found | None = None
        came: Came | None = None
        while self._next < end or (came is not None and found is None):
            for record in self._read_on():
                if record.offset() == offset:
                    request = decode_request(_header(record, DELAY_HEADER))
                    came = request and Came(offset, request.home, request.due, request.delay, record)
                if self._follow(record) and came is not None and found is None:
                    found = _Found(came.home or "", due_of(came, self._time))
        return found

    def _find_in_tiers(self, offset: int) -> _Found | None:
        places = [TopicPartition(tier_topic(n), self._partition) for n in reversed(range(self._layout.tiers))]
        # One request says which tiers were ever written; most weren't.
        used = self._admin.high_watermarks(places)
        for place in places:
            if not used[place]:
                continue
            topic = place.topic
            start, end = self._admin.log_range(place)
            if start == end:
                continue
            committed = self._committed(topic)
            at = max(start, parse_tier(*committed).position if committed else 0)
            for record in _records(self._fetch, place, at, end):
                said = decode_delayed(_header(record, DELAY_HEADER))
                if said is not None and said.offset == offset:
                    return _Found(said.home, said.due)
        return None

    def _committed(self, topic: str) -> tuple[int, str] | None:
        found = self._admin.group_offsets(GROUP, topic).get(self._partition)
        return None if found is None or found.offset is None else (found.offset, found.metadata)

    def _read_on(self) -> Sequence[StoredRecord]:
        """Returns the next records of ingest, after a moment if there are none yet."""
        end = self._admin.last_stable_offsets(INGEST)[self._partition]
        stop = min(end, self._next + AT_ONCE)
        records = list(_records(self._fetch, self._ingest, self._next, stop))
        if len(records) < stop - self._next and self._admin.log_range(self._ingest)[0] > self._next:
            raise _Trimmed
        self._next = max(stop, self._next)
        if not records:
            if time.monotonic() > self._deadline:
                raise _unanswered()
            time.sleep(_LOOK)
        return records

    def _follow(self, record: StoredRecord) -> bool:
        """Follows the time of the log; returns whether the record has a stamp, which dates all up to it."""
        stamp = stamp_of(record)
        self._time = max(self._time, stamp or 0)
        return stamp is not None


def _records(fetch: RecordFetch, place: TopicPartition, start: int, end: int) -> Iterator[StoredRecord]:
    for at in range(start, end, AT_ONCE):
        yield from read_all(fetch, place, list(range(at, min(end, at + AT_ONCE))))


def _header(record: StoredRecord, wanted: str) -> bytes | None:
    return next((value for name, value in record.headers() or () if name == wanted), None)


def parse_id(message_id: str) -> tuple[str, int, int]:
    """Returns the topic, the partition and the offset of an id."""
    found = re.fullmatch(r"(.+):(\d+):(\d+)", str(message_id))
    if found is None:
        raise InvalidArgument(
            f"message_id: must be TOPIC:PARTITION:OFFSET, as `publish` gives it, not {message_id!r}"
        )
    return found[1], int(found[2]), int(found[3])


def _unanswered() -> DeadlineExceeded:
    return DeadlineExceeded(
        "it couldn't be read in time whether the message is cancelled: the request may still count; see `kafka-pubsub "
        "delay list`, and try again"
    )
