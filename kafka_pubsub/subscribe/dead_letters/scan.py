"""Reads the unfinished dead letters of one subscription from a dead-letter topic, in the order of the log.

Rules
1. The scan ends where the log ended when the scan began: the next scan reads later dead letters.
2. Finished dead letters of any subscription aren't read again.
3. The scan skips dead letters of other subscriptions and records that aren't dead letters, and notes the first of them
   (`bounds`): a purge that deletes from the front must not go past it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import BrokerUnavailable
from kafka_pubsub.log.ports import Admin, RecordFetch
from kafka_pubsub.model import StoredRecord, TopicInfo, TopicPartition
from kafka_pubsub.subscribe.dead_letters.processed_marks import ProcessedMarks
from kafka_pubsub.subscribe.formats.dead_letter_record import DeadLetterRecord, read_dead_letter

__all__ = [
    "DeadLetterScan",
    "Found",
    "ReadSome",
    "Replayable",
    "attributes_of",
    "header_of",
    "read_all",
    "read_places",
    "read_some",
    "reader_of",
    "shares",
]

#: Records, bytes and seconds of one request.
AT_ONCE = 5000
_BYTES = 8 * 1024 * 1024
_SECONDS = 10.0


class Found(NamedTuple):
    """A dead letter and its record."""

    record: StoredRecord
    dead_letter: DeadLetterRecord

    @property
    def place(self) -> tuple[int, int]:
        """The record's partition and offset."""
        return self.record.partition() or 0, self.record.offset() or 0


def reader_of(subscription: str) -> Callable[[StoredRecord], DeadLetterRecord | None]:
    """Returns a function that reads a dead letter of the subscription; it returns None for other records."""

    def read(record: StoredRecord) -> DeadLetterRecord | None:
        found = read_dead_letter(record.headers())
        return found if found is not None and found.subscription == subscription else None

    return read


class DeadLetterScan:
    """One scan of a dead-letter topic; `read` returns None for what isn't looked for."""

    def __init__(
        self,
        fetch: RecordFetch,
        admin: Admin,
        topic: TopicInfo,
        read: Callable[[StoredRecord], DeadLetterRecord | None],
        marks: ProcessedMarks,
        on_read: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        self._fetch = fetch
        self._topic = topic
        self._read = read
        self._marks = marks
        self._on_read = on_read
        self._ends = admin.last_stable_offsets(topic.name)
        self._starts = {number: admin.log_range(self._place(number))[0] for number in self._ends}
        self._total = sum(max(0, end - self._starts[number]) for number, end in self._ends.items())
        self._done = 0
        #: The first record of each partition that isn't looked for; the end if there is none.
        self.bounds: dict[int, int] = dict(self._ends)

    def _place(self, number: int) -> TopicPartition:
        return TopicPartition(self._topic.name, number)

    def __iter__(self) -> Iterator[Found]:
        for number in sorted(self._ends):
            yield from self.partition(number)

    def partition(self, number: int) -> Iterator[Found]:
        """Yields the unfinished dead letters of one partition."""
        at, end = self._starts[number], self._ends[number]
        while at < end:
            chunk = range(at, min(end, at + AT_ONCE))
            for record in read_all(
                self._fetch,
                self._place(number),
                self._marks.open_offsets(self._topic.topic_id, number, chunk),
            ):
                dead_letter = self._read(record)
                if dead_letter is not None:
                    yield Found(record, dead_letter)
                else:
                    self.bounds[number] = min(self.bounds[number], record.offset() or 0)
            self._done += len(chunk)
            self._on_read(self._done, self._total)
            at = chunk.stop


def read_all(
    fetch: RecordFetch, place: TopicPartition, offsets: list[int], max_bytes: int = _BYTES
) -> Iterator[StoredRecord]:
    """Yields the records that exist at these offsets, lowest first; holds some `max_bytes` of bodies at once."""
    while offsets:
        found = fetch.fetch(place, offsets, max_bytes, _SECONDS)
        yield from found.records
        seen = {record.offset() or 0 for record in found.records} | set(found.missing)
        if not seen:
            raise _unreadable(place)
        offsets = [each for each in offsets if each not in seen]


def _unreadable(place: TopicPartition) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"nothing of {place.topic}[{place.partition}] could be read for {_SECONDS:g} s: try again"
    )


class ReadSome(NamedTuple):
    """The records that were read, and the offsets that weren't because `read_some` had enough bytes."""

    records: Sequence[StoredRecord]
    unread: Sequence[int]


def read_some(
    fetch: RecordFetch, wanted: Mapping[TopicPartition, Sequence[int]], most: int
) -> dict[TopicPartition, ReadSome]:
    """Reads the records at these offsets of many partitions together, until it has `most` bytes of bodies."""
    found = {place: ReadSome([], offsets) for place, offsets in wanted.items()}
    room = most
    while room > 0 and (left := {place: some.unread for place, some in found.items() if some.unread}):
        seen = 0
        for place, answer in fetch.fetch_all(left, max(room // len(left), 1), _SECONDS).items():
            known = {record.offset() or 0 for record in answer.records} | set(answer.missing)
            unread = [each for each in left[place] if each not in known]
            found[place] = ReadSome([*found[place].records, *answer.records], unread)
            room -= sum(map(len, answer.records))
            seen += len(known)
        if not seen:
            raise _unreadable(next(iter(left)))
    return found


def shares(sizes: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Divides `most` among partitions that have so much to read: as evenly as their sizes let it."""
    found: dict[TopicPartition, int] = {}
    for place in sorted(sizes, key=sizes.__getitem__):
        found[place] = min(sizes[place], most // (len(sizes) - len(found)))
        most -= found[place]
    return found


def read_places(
    fetch: RecordFetch, topic: str, places: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], StoredRecord]:
    """Returns the records that exist at these places, given as partition and offset."""
    by_partition: dict[int, list[int]] = {}
    for number, offset in places:
        by_partition.setdefault(number, []).append(offset)
    return {
        (number, record.offset() or 0): record
        for number, offsets in by_partition.items()
        for record in read_all(fetch, TopicPartition(topic, number), sorted(offsets))
    }


def attributes_of(record: StoredRecord) -> dict[str, str]:
    """Returns the publisher's own headers as text."""
    return {
        name: (value or b"").decode("utf-8", "surrogateescape")
        for name, value in record.headers() or ()
        if not name.startswith("ps-")
    }


def header_of(record: StoredRecord, wanted: str) -> bytes | None:
    """Returns the value of a header; None: there is none."""
    return next((value for name, value in record.headers() or () if name == wanted), None)


class Replayable:
    """A check whether a dead letter can be replayed to its subscription."""

    def __init__(self, record: SubscriptionRecord, ends: Mapping[tuple[str, int], int]) -> None:
        self._record = record
        # By the id of the topic or lane, and partition, the end: nothing was published beyond.
        self._ends = ends
        self._ids = {record.topic_id, *(topic_id for topic_id, _ in ends)}

    def problem(self, dead_letter: DeadLetterRecord) -> str | None:
        """Returns why the dead letter can't be replayed; None: it can."""
        record, origin = self._record, dead_letter.origin
        if origin is None:
            return "it doesn't say where it was published: it couldn't be read in the retry topic either"
        if record.detached or origin.topic_id not in self._ids:
            return f"the topic {dead_letter.topic!r} that it was published to was deleted"
        if origin.offset >= self._ends.get((origin.topic_id, origin.partition), 0):
            place = f"{dead_letter.topic}:{origin.partition}:{origin.offset}"
            return f"it says that it was published at {place}, which isn't there"
        return None
