"""What waits in the delays of a cluster, read from the logs alone.

Theory. A message waits in one log: in ingest, or in a tier. Of each log the routers' group has committed a position and
how far the log was handled. The mark says which messages are at home. Of the others those wait that lie above what was
handled, and those below it that rest in a router's memory for their last second.

Rules
1. All commits are read before all ends, so a message that hops meanwhile is found in one of its places or in both; of
   both the later place counts.
2. A message of ingest came in at the time of the log there (`delays/ingest.py`). Where brokers didn't stamp what
   came in, and nothing stamped has come since, its due time isn't known.
3. Requests to cancel are no messages: the message that a request is for doesn't wait any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from kafka_pubsub.delays.ingest import due_of
from kafka_pubsub.delays.layout import GROUP, INGEST, UNIT, DelayLayout
from kafka_pubsub.delays.progress import IngestProgress, Progress, parse_ingest, parse_tier
from kafka_pubsub.delays.records import (
    CANCEL_HEADER,
    DELAY_HEADER,
    DelayCancel,
    decode_cancel,
    decode_delayed,
    decode_request,
    parts_of,
)
from kafka_pubsub.delays.stamps import stamp_of
from kafka_pubsub.delays.values import Came
from kafka_pubsub.log.ports import Admin, RecordFetch
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.subscribe.dead_letters.scan import AT_ONCE, attributes_of, header_of, read_all

__all__ = ["WaitingMessage", "by_topic", "waiting_messages"]


class WaitingMessage(NamedTuple):
    """A delayed message that isn't delivered yet.

    `message_id`: what `publish`'s future gave, and the message's id at home; `id` is the same. `topic`: where it goes.
    `due`: when; None: no broker has stamped it, so a relative delay begins with the next router. `tier`: the tier in
    which it waits, for 2**tier seconds; None: it came in and is in no tier yet. `size`: the bytes of its body. `data`
    and `attributes` are there if they, or one message, were asked for.
    """

    id: str
    topic: str
    ordering_key: str | None
    due: datetime | None
    tier: int | None
    size: int
    data: bytes | None = None
    attributes: Mapping[str, str] = MappingProxyType({})

    @property
    def message_id(self) -> str:
        """The same as `id`, by the name that it has everywhere."""
        return self.id


def by_topic(found: Iterable[WaitingMessage]) -> dict[str, list[WaitingMessage]]:
    """Returns the messages of each topic, by the topics' names in order."""
    topics: dict[str, list[WaitingMessage]] = {}
    for message in found:
        topics.setdefault(message.topic, []).append(message)
    return dict(sorted(topics.items()))


def waiting_messages(
    admin: Admin,
    fetch: RecordFetch,
    layout: DelayLayout,
    partition: int,
    *,
    offset: int | None = None,
    bodies: bool = False,
    on_read: Callable[[int], object] = lambda count: None,
) -> Iterator[WaitingMessage]:
    """Yields what waits in one partition, with `bodies` with its data, or only what came in at `offset`, with its data.

    `on_read` gets the number of records that were read since its last call.
    """
    scan = _Scan(admin, fetch, layout, partition, offset, on_read)
    scan.bodies = bodies or offset is not None
    return scan.read()


class _Scan:
    """One look at one partition of all logs."""

    def __init__(
        self,
        admin: Admin,
        fetch: RecordFetch,
        layout: DelayLayout,
        partition: int,
        offset: int | None,
        on_read: Callable[[int], object],
    ) -> None:
        self._fetch, self._partition, self._offset, self._on_read = fetch, partition, offset, on_read
        #: Whether messages are found with their data and attributes.
        self.bodies = False
        self._topics = layout.topics
        places = [TopicPartition(topic, partition) for topic in self._topics]
        # One request says which logs were ever written: most tiers weren't, and each question about one takes a while.
        used = admin.high_watermarks(places)
        commits = [
            admin.group_offsets(GROUP, place.topic).get(partition) if used[place] else None
            for place in places
        ]
        # Asked again: what was read of ingest before those commits may have its first record in a tier since.
        used = admin.high_watermarks(places)
        self._ranges = [
            (admin.log_range(place)[0], admin.last_stable_offsets(place.topic)[partition])
            if used[place]
            else (0, 0)
            for place in places
        ]
        begun: list[IngestProgress | Progress] = []
        for number, found in enumerate(commits):
            at, text = (self._ranges[number][0], "") if found is None else (found.offset or 0, found.metadata)
            begun.append(parse_tier(at, text) if number else parse_ingest(at, text))
        self._progress = begun
        ingest = begun[0]
        assert isinstance(ingest, IngestProgress)
        self._mark_of, self._time = ingest.mark_of, ingest.time or 0
        #: By the offset at which they came in.
        self._found: dict[int, WaitingMessage] = {}
        self._cancelled: set[tuple[int, int]] = set()

    def read(self) -> Iterator[WaitingMessage]:
        """Reads the logs, then yields what waits, by the order in which it came in."""
        self._read_ingest()
        for number in reversed(range(1, len(self._topics))):
            for record in self._records(number):
                self._take_delayed(number, record)
        for offset, message in sorted(self._found.items()):
            due = None if message.due is None else _milliseconds(message.due)
            if due is None or (due, offset) not in self._cancelled:
                yield message

    def _read_ingest(self) -> None:
        came: deque[Came] = deque()
        for record in self._records(0):
            request, cancel = decode_request(header_of(record, DELAY_HEADER)), _cancel(record)
            offset = record.offset() or 0
            if request is not None:
                came.append(Came(offset, request.home, request.due, request.delay, record))
            elif cancel is not None:
                came.append(Came(offset, "", cancel.due, None, record, cancel.target))
            stamp = stamp_of(record)
            if stamp is not None:
                self._time = max(self._time, stamp)
                while came:
                    self._arrive(came.popleft())
        for each in came:
            if each.target < 0:
                self._add(each.offset, each.home or "", each.due, None, each.record)

    def _arrive(self, message: Came) -> None:
        """Takes a message of ingest, or a request, that came in now."""
        if message.target >= 0:
            if (message.due or 0) > self._time:
                self._cancelled.add((message.due or 0, message.target))
            return
        due = due_of(message, self._time)
        home = message.home or ""
        if self._waits(home, 0, message.offset, (due, message.offset), rests=due - self._time < UNIT):
            self._add(message.offset, home, due, None, message.record)

    def _take_delayed(self, number: int, record: StoredRecord) -> None:
        said, cancel = decode_delayed(header_of(record, DELAY_HEADER)), _cancel(record)
        if cancel is not None:
            self._cancelled.add((cancel.due, cancel.target))
        elif said is not None and self._waits(
            said.home, number, record.offset() or 0, (said.due, said.offset), rests=said.left == 0
        ):
            self._add(said.offset, said.home, said.due, number - 1, record)

    def _waits(self, home: str, number: int, position: int, key: tuple[int, int], *, rests: bool) -> bool:
        return key > self._mark_of(home) and (rests or position >= self._progress[number].handled)

    def _add(self, offset: int, home: str, due: int | None, tier: int | None, record: StoredRecord) -> None:
        if self._offset not in (None, offset):
            return
        key, value = record.key(), record.value() or b""
        own = None if key is None else key.partition(b"\0")[2].decode("utf-8", "surrogateescape")
        when = None if due is None else datetime.fromtimestamp(due / 1000, UTC)
        message_id = f"{INGEST}:{self._partition}:{offset}"
        found = WaitingMessage(message_id, parts_of(home)[0], own, when, tier, len(value))
        if self.bodies:
            found = found._replace(data=value, attributes=attributes_of(record))
        self._found[offset] = found

    def _records(self, number: int) -> Iterator[StoredRecord]:
        place = TopicPartition(self._topics[number], self._partition)
        start, end = self._ranges[number]
        for at in range(max(start, self._progress[number].position), end, AT_ONCE):
            chunk = list(read_all(self._fetch, place, list(range(at, min(end, at + AT_ONCE)))))
            self._on_read(len(chunk))
            yield from chunk


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _cancel(record: StoredRecord) -> DelayCancel | None:
    value = header_of(record, CANCEL_HEADER)
    return None if value is None else decode_cancel(value)
