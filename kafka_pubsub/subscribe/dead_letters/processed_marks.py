"""Marks of the dead letters that are finished: replayed, or purged.

A dead-letter topic is an ordinary topic that others may read, and Kafka deletes only from its front. So finished dead
letters are marked in a separate compacted topic: a bitmap for each run of `CHUNK` offsets. A replay stores the marks in
the transaction that stores the records, so it marks a dead letter if and only if it replays it. (A consumer group's
position couldn't do this: it is forgotten after a week without members, and has room for about 1,700 gaps.)

Rules
1. An offset is marked for the subscription that its dead letter names; other subscriptions mark other offsets.
2. Only the command with a subscription's exclusive session (`exclusive_session.py`) writes its marks, so a bitmap is
   never older than the one that it replaces.
3. A record that can't be decoded is ignored: at worst a dead letter is shown again. It is never taken for a mark.

Layout, big endian: version (1), bitmap of the chunk (`CHUNK` / 8), checksum (4) over key and body.
The key is text: `1/SUBSCRIPTION/TOPIC ID/PARTITION/CHUNK`.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from zlib import crc32

from kafka_pubsub.errors import AlreadyExists, BrokerUnavailable, FailedPrecondition, NotFound
from kafka_pubsub.log.ports import Admin, RecordFetch
from kafka_pubsub.model import NewRecord, StoredRecord, TopicPartition

__all__ = ["CHUNK", "MARKS", "MARKS_TOPIC", "ProcessedMarks", "make_marks_topic", "read_marks"]

MARKS_TOPIC = "_kafka_pubsub.deadletters"
#: Its only partition.
MARKS = TopicPartition(MARKS_TOPIC, 0)
#: The settings with which the topic is made; an operator who makes it uses the same.
MARKS_SETTINGS: Mapping[str, str] = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}

#: Offsets in one record: half a kilobyte, so that a batch of marks stays small beside its records.
CHUNK = 4096
#: The most offsets in one request.
_AT_ONCE = 2000
_BYTES = 8 * 1024 * 1024
#: Seconds for one request, and for all: a killed command's open transaction hides the end for up to 20 s.
_REQUEST_S = 5.0
_DEADLINE = 40.0

_VERSION = 1

#: A topic id is base64, so it may hold a slash; the name of a subscription can't.
_KEY = re.compile(rf"{_VERSION}/([^/]+)/(.+)/(\d+)/(\d+)", re.ASCII)

#: Topic id, partition and number of the chunk.
_Chunk = tuple[str, int, int]


def read_marks(admin: Admin, fetch: RecordFetch) -> ProcessedMarks:
    """Returns the current marks, for a command that changes nothing."""
    marks = ProcessedMarks(fetch)
    with contextlib.suppress(NotFound):  # no dead letter was replayed or purged yet
        marks.read(admin.last_stable_offsets(MARKS_TOPIC).get(MARKS.partition, 0))
    return marks


def make_marks_topic(admin: Admin, *, may_create: bool) -> None:
    """Makes the topic if there is none."""
    try:
        admin.topic(MARKS_TOPIC)
        return
    except NotFound:
        if not may_create:
            raise FailedPrecondition(
                f"topic {MARKS_TOPIC!r} doesn't exist, and with create=False (KAFKA_PUBSUB_CREATE) none is made: "
                "have it made with 1 partition and cleanup.policy=compact, or call from a client that may"
            ) from None
    with contextlib.suppress(AlreadyExists):  # another process was faster
        admin.create_topic(MARKS_TOPIC, 1, None, MARKS_SETTINGS)


class ProcessedMarks:
    """The marks of all subscriptions, as of the last `read`."""

    def __init__(self, fetch: RecordFetch) -> None:
        self._fetch = fetch
        #: The next offset of the marks' topic to be read.
        self.position = 0
        # By subscription; bit n: offset chunk * CHUNK + n is finished. Empty: no offset is.
        self._bits: defaultdict[str, dict[_Chunk, int]] = defaultdict(dict)

    def read(self, end: int) -> None:
        """Reads further marks up to `end`; waits for transactions that are open below it."""
        until = time.monotonic() + _DEADLINE
        while self.position < end:
            wanted = range(self.position, min(end, self.position + _AT_ONCE))
            found = self._fetch.fetch(MARKS, wanted, _BYTES, _REQUEST_S)
            for record in found.records:
                self._take(record)
            seen = [record.offset() or 0 for record in found.records] + list(found.missing)
            if seen:
                self.position = max(seen) + 1
            elif time.monotonic() > until:
                raise BrokerUnavailable(
                    f"the marks of replayed dead letters in {MARKS_TOPIC!r} can't be read up to their end: a "
                    "transaction is still open there; try again in some seconds"
                )

    def has(self, topic_id: str, partition: int, offset: int) -> bool:
        """Tells whether a dead letter is finished; each belongs to one subscription."""
        chunk, bit = (topic_id, partition, offset // CHUNK), 1 << offset % CHUNK
        return any(bits.get(chunk, 0) & bit for bits in self._bits.values())

    def open_offsets(self, topic_id: str, partition: int, offsets: range) -> list[int]:
        """Returns the offsets whose dead letters aren't finished."""
        done = self._done(topic_id, partition, offsets)
        return [each for each in offsets if not done[each // CHUNK] >> each % CHUNK & 1]

    def newest_open(self, topic_id: str, partition: int, offsets: range, most: int) -> list[int]:
        """Returns the last `most` of these offsets whose dead letters aren't finished."""
        found: list[int] = []
        end = offsets.stop
        while end > offsets.start and len(found) < most:
            start = max(offsets.start, (end - 1) // CHUNK * CHUNK)
            if self.count_open(topic_id, partition, range(start, end)):
                found = self.open_offsets(topic_id, partition, range(start, end)) + found
            end = start
        return found[-most:] if most else []

    def count_open(self, topic_id: str, partition: int, offsets: range) -> int:
        """Returns how many of these offsets have dead letters that aren't finished."""
        done = sum(
            (bits & _bits_of(number, offsets)).bit_count()
            for number, bits in self._done(topic_id, partition, offsets).items()
        )
        return len(offsets) - done

    def _done(self, topic_id: str, partition: int, offsets: range) -> dict[int, int]:
        """Returns the marks of all subscriptions, by the number of the chunk."""
        done = dict.fromkeys(range(offsets.start // CHUNK, offsets.stop // CHUNK + 1), 0)
        for bits in self._bits.values():
            for number in done:
                done[number] |= bits.get((topic_id, partition, number), 0)
        return done

    def with_more(
        self, subscription: str, topic_id: str, places: Iterable[tuple[int, int]]
    ) -> list[NewRecord]:
        """Builds records that also mark these places; the marks held here don't change."""
        changed: dict[_Chunk, int] = {}
        mine = self._bits[subscription]
        for partition, offset in places:
            chunk = (topic_id, partition, offset // CHUNK)
            changed[chunk] = changed.get(chunk, mine.get(chunk, 0)) | 1 << offset % CHUNK
        return [_encode(subscription, chunk, bits) for chunk, bits in changed.items()]

    def add(self, records: Iterable[NewRecord]) -> None:
        """Applies records that this command stored; reading them again later does no harm."""
        for record in records:
            self._note(record.key, record.value)

    def _take(self, record: StoredRecord) -> None:
        self._note(record.key(), record.value())

    def _note(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        named = _KEY.fullmatch(key.decode("utf-8", "replace"))
        if named is None:
            return
        subscription, topic_id = named[1], named[2]
        chunk = (topic_id, int(named[3]), int(named[4]))
        if value is None:
            self._bits[subscription].pop(chunk, None)
        elif _is_whole(key, value):
            self._bits[subscription][chunk] = int.from_bytes(value[1:-4])


def _bits_of(chunk: int, offsets: range) -> int:
    """Returns a bitmap of the chunk with a bit for each of the offsets in it."""
    start, stop = (min(max(each - chunk * CHUNK, 0), CHUNK) for each in (offsets.start, offsets.stop))
    return (1 << stop) - (1 << start)


def _is_whole(key: bytes, value: bytes) -> bool:
    if len(value) != 5 + CHUNK // 8 or value[0] != _VERSION:
        return False
    return crc32(value[:-4], crc32(key)) == int.from_bytes(value[-4:])


def _encode(subscription: str, chunk: _Chunk, bits: int) -> NewRecord:
    topic_id, partition, number = chunk
    key = f"{_VERSION}/{subscription}/{topic_id}/{partition}/{number}".encode()
    body = bytes([_VERSION]) + bits.to_bytes(CHUNK // 8)
    return NewRecord(MARKS_TOPIC, 0, key, body + crc32(body, crc32(key)).to_bytes(4))
