"""The delay routers' dead letters: listed, brought home, purged, with the means of a subscription's dead letters.

Rules
1. A replay writes the message to the topic that has its home's name now, as a router would, with the mark that its dead
   letter is finished, in one transaction under an exclusive session. So each comes home once, and a call that was
   interrupted can be repeated.
2. What can't go home stays where it is, and the result says why: a topic that is gone, a message that isn't due.
3. A purge deletes finished dead letters from the front of the topic; a replay deletes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import NamedTuple

from kafka_pubsub.client.dead_letters.model import DeadLetterResult, Selection, moment
from kafka_pubsub.client.dead_letters.processed_marks import ProcessedMarks
from kafka_pubsub.client.dead_letters.reading import DeadLetterScan, Found, read_places
from kafka_pubsub.client.dead_letters.replay import BATCH, MARKED, DeadLetters
from kafka_pubsub.client.delays.homes import Homes
from kafka_pubsub.client.delays.waiting import attributes_of, header_of
from kafka_pubsub.core.delays.layout import DEAD, GROUP, UNIT
from kafka_pubsub.core.retry.dead_letter_record import DeadLetterRecord
from kafka_pubsub.errors import NotFound
from kafka_pubsub.model import NewRecord, StoredRecord, TopicInfo, decode_ordering_key
from kafka_pubsub.ports import Backend, RecordFetch
from kafka_pubsub.schema.delays import (
    DEAD_REASON_HEADER,
    DELAY_HEADER,
    ID_HEADER,
    decode_delayed,
    decode_request,
    parts_of,
)

__all__ = ["DelayDeadLetter", "DelayDeadLetters"]

#: What routers write beside the publisher's headers.
_OURS = frozenset({DEAD_REASON_HEADER, DELAY_HEADER, ID_HEADER})


class DelayDeadLetter(NamedTuple):
    """A delayed message that no router could deliver.

    `message_id` is what `publish`'s future gave, and `id` the place among the dead letters: commands take both.
    `topic`: where it was to go; None: kafka_pubsub didn't write it. `due`: when; None: that isn't known. `died`: when a
    router gave it up, with the `reason`. `problem` says why it can't be replayed now; None: it can.
    """

    id: str
    message_id: str
    topic: str | None
    ordering_key: str | None
    due: datetime | None
    died: datetime
    reason: str
    data: bytes
    attributes: Mapping[str, str]
    problem: str | None = None


class DelayDeadLetters:
    """The dead letters of one cluster's delay routers."""

    def __init__(self, backend: Backend, dead_letters: DeadLetters) -> None:
        self._backend = backend
        self._dead_letters = dead_letters

    def find(self, ids: Iterable[str] | None, topic: str | None) -> Iterator[DelayDeadLetter]:
        """Yields those that are neither replayed nor purged, by partition and offset."""
        picks, homes, info = _picker(ids, topic), Homes(self._backend), self._topic()
        if info is None:
            return
        with closing(self._backend.record_fetch()) as fetch:
            for found in self._scan(info, fetch, self._dead_letters.marks(fetch)):
                if picks(found):
                    yield _letter(found, _problem(found, homes))

    def replay(self, ids: Iterable[str] | None, topic: str | None, *, dry_run: bool) -> DeadLetterResult:
        """Brings the picked ones home; with `dry_run` it only counts them."""
        picks, homes, info = _picker(ids, topic), Homes(self._backend), self._topic()
        skipped: Counter[str] = Counter()
        if info is None:
            return DeadLetterResult(0, 0)

        def wanted(found: Found) -> bool:
            problem = _problem(found, homes) if picks(found) else ""
            if problem:
                skipped[problem] += 1
            return problem is None

        with closing(self._backend.record_fetch()) as fetch:
            if dry_run:
                plan, _ = self._dead_letters.plan(
                    self._scan(info, fetch, self._dead_letters.marks(fetch)), wanted
                )
                return DeadLetterResult(len(plan), plan.keys, dict(skipped))
            marks, count = ProcessedMarks(fetch), 0
            with self._dead_letters.session(GROUP, marks) as session:
                plan, _ = self._dead_letters.plan(self._scan(info, fetch, marks), wanted)
                for batch in plan.batches(BATCH):
                    found = read_places(fetch, DEAD, batch)
                    records = [(place, _at_home(found[place], homes)) for place in batch if place in found]
                    count += self._dead_letters.bring_back(
                        session,
                        marks,
                        GROUP,
                        info.topic_id,
                        records,
                        lambda reason: skipped.update([f"its topic refuses it: {reason}"]),
                    )
        return DeadLetterResult(count, plan.keys, dict(skipped))

    def purge(self, ids: Iterable[str] | None, topic: str | None, *, dry_run: bool) -> DeadLetterResult:
        """Gives the picked ones up; with `dry_run` it only counts them."""
        picks, info = _picker(ids, topic), self._topic()
        if info is None:
            return DeadLetterResult(0, 0)
        with closing(self._backend.record_fetch()) as fetch:
            if dry_run:
                plan, _ = self._dead_letters.plan(
                    self._scan(info, fetch, self._dead_letters.marks(fetch)), picks
                )
                return DeadLetterResult(len(plan), plan.keys)
            marks = ProcessedMarks(fetch)
            with self._dead_letters.session(GROUP, marks) as session:
                plan, bounds = self._dead_letters.plan(self._scan(info, fetch, marks), picks)
                for batch in plan.batches(MARKED):
                    self._dead_letters.store(
                        session, partial(marks.with_more, GROUP, info.topic_id, batch), marks
                    )
        self._backend.admin.trim(DEAD, {number: at for number, at in bounds.items() if at > 0})
        return DeadLetterResult(len(plan), plan.keys)

    def _topic(self) -> TopicInfo | None:
        try:
            return self._backend.admin.topic(DEAD)
        except NotFound:
            return None  # nothing was ever delayed

    def _scan(self, info: TopicInfo, fetch: RecordFetch, marks: ProcessedMarks) -> DeadLetterScan:
        return DeadLetterScan(fetch, self._backend.admin, info, _read, marks)


def _picker(ids: Iterable[str] | None, topic: str | None) -> Callable[[Found], bool]:
    wanted = Selection.of(ids=ids).ids
    return lambda found: (
        (not wanted or not wanted.isdisjoint((_place(found.record), _message_id(found.record))))
        and topic in (None, found.dead_letter.topic)
    )


def _place(record: StoredRecord) -> str:
    return f"{record.partition()}:{record.offset()}"


def _message_id(record: StoredRecord) -> str:
    return (header_of(record, ID_HEADER) or b"").decode("utf-8", "replace")


def _read(record: StoredRecord) -> DeadLetterRecord | None:
    reason = header_of(record, DEAD_REASON_HEADER)
    if reason is None:
        return None
    home, _ = _aim(record)
    return DeadLetterRecord(
        GROUP, home or "", reason.decode("utf-8", "replace"), time=max(record.timestamp()[1], 0)
    )


def _aim(record: StoredRecord) -> tuple[str | None, int | None]:
    """Returns the name of the topic where the message was to go, and when; None: that isn't known."""
    said = header_of(record, DELAY_HEADER)
    hop = decode_delayed(said)
    if hop is not None:
        return parts_of(hop.home)[0], hop.due
    request = decode_request(said)
    if request is None:
        return None, None
    if request.due is not None:
        return parts_of(request.home)[0], request.due
    # What hadn't begun its whole seconds died when it was due, or because they were too many.
    delay = request.delay or 0
    return parts_of(request.home)[0], record.timestamp()[1] + (delay if delay >= UNIT else 0)


def _problem(found: Found, homes: Homes) -> str | None:
    home, due = _aim(found.record)
    if home is None:
        return f"it can't go home: {found.dead_letter.reason}"
    if due is not None and due > homes.now() * 1000:
        return f"{found.dead_letter.reason}; it isn't due before {moment(due).isoformat(timespec='seconds')}"
    topic = homes.find(home)
    if topic.refused:
        return topic.refused if topic.partitions else f"{topic.refused}: make it again, then replay"
    return topic.held or None if found.record.key() is not None or not topic.partitions else None


def _letter(found: Found, problem: str | None) -> DelayDeadLetter:
    record = found.record
    home, due = _aim(record)
    key = record.key() if home is None else _own_key(record)
    return DelayDeadLetter(
        _place(record),
        _message_id(record),
        home,
        decode_ordering_key(key),
        None if due is None else moment(due),
        moment(found.dead_letter.time),
        found.dead_letter.reason,
        record.value() or b"",
        attributes_of(record),
        problem,
    )


def _at_home(record: StoredRecord, homes: Homes) -> NewRecord:
    """Returns the record as a router would have written it."""
    home, key = homes.find(_aim(record)[0] or ""), _own_key(record)
    if home.refused:
        raise NotFound(f"{home.refused}: make it again, then replay")
    headers = [
        (ID_HEADER, header_of(record, ID_HEADER)),
        *(header for header in record.headers() or () if header[0] not in _OURS),
    ]
    partition = homes.partition(home, key)
    return NewRecord(home.name, partition, key, record.value(), headers, round(homes.now() * 1000))


def _own_key(record: StoredRecord) -> bytes | None:
    key = record.key()
    return None if key is None else key.partition(b"\0")[2]
