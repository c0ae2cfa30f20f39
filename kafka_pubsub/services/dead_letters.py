"""The dead letters of a service: listed, brought home, purged, with the means of a subscription's dead letters.

Rules
1. A replay stores what brings a message home with the mark that its dead letter is finished, in one transaction under
   an exclusive session. So each comes home once, and a call that was interrupted can be repeated.
2. What can't go home stays where it is, and the result says why.
3. A purge deletes finished dead letters from the front of the topic; a replay deletes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Generic, Protocol, TypeVar

from kafka_pubsub.dead_letters.model import DeadLetterResult, Selection
from kafka_pubsub.dead_letters.replay import BATCH, MARKED, DeadLetters
from kafka_pubsub.errors import NotFound
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import ID_HEADER, NewRecord, StoredRecord, TopicInfo
from kafka_pubsub.subscribe.dead_letters.processed_marks import ProcessedMarks
from kafka_pubsub.subscribe.dead_letters.scan import DeadLetterScan, Found, header_of, read_places
from kafka_pubsub.subscribe.formats.dead_letter_record import DeadLetterRecord

__all__ = ["Letters", "ServiceDeadLetters", "id_of", "place_in_topic"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Letters(Protocol[T_co]):
    """How one command reads a service's dead letters, and what it knows of the topics to which they go.

    `group`: the service's group. `topic`: where its dead letters are.
    """

    group: str
    topic: str

    def read(self, record: StoredRecord) -> DeadLetterRecord | None:
        """Returns what a record says as a dead letter; None: it isn't one."""

    def problem(self, found: Found) -> str | None:
        """Returns why a dead letter can't go home now; None: it can."""

    def letter(self, found: Found, problem: str | None) -> T_co:
        """Returns a dead letter as its user sees it."""

    def prepare(self, found: Found) -> None:
        """A dead letter is going to go home; all are prepared before the first goes."""

    def at_home(self, record: StoredRecord) -> Sequence[NewRecord]:
        """Returns what brings the message home."""


class ServiceDeadLetters(Generic[T]):
    """The dead letters of one service of a cluster; `begin` makes what a command knows."""

    def __init__(self, backend: Backend, dead_letters: DeadLetters, begin: Callable[[], Letters[T]]) -> None:
        self._backend, self._dead_letters, self._begin = backend, dead_letters, begin

    def find(self, ids: Iterable[str] | None, topic: str | None) -> Iterator[T]:
        """Yields those that are neither replayed nor purged, by partition and offset."""
        picks, letters = _picker(ids, topic), self._begin()
        info = self._topic(letters)
        if info is None:
            return
        with closing(self._backend.record_fetch()) as fetch:
            for found in self._scan(letters, info, fetch, self._dead_letters.marks(fetch)):
                if picks(found):
                    yield letters.letter(found, letters.problem(found))

    def replay(self, ids: Iterable[str] | None, topic: str | None, *, dry_run: bool) -> DeadLetterResult:
        """Brings the picked ones home; with `dry_run` it only counts them."""
        picks, letters = _picker(ids, topic), self._begin()
        info = self._topic(letters)
        skipped: Counter[str] = Counter()
        if info is None:
            return DeadLetterResult(0, 0)

        def wanted(found: Found) -> bool:
            problem = letters.problem(found) if picks(found) else ""
            if problem:
                skipped[problem] += 1
            elif problem is None:
                letters.prepare(found)
            return problem is None

        with closing(self._backend.record_fetch()) as fetch:
            if dry_run:
                marks = self._dead_letters.marks(fetch)
                plan, _ = self._dead_letters.plan(self._scan(letters, info, fetch, marks), wanted)
                return DeadLetterResult(len(plan), plan.keys, dict(skipped))
            marks, count = ProcessedMarks(fetch), 0
            with self._dead_letters.session(letters.group, marks) as session:
                plan, _ = self._dead_letters.plan(self._scan(letters, info, fetch, marks), wanted)
                for batch in plan.batches(BATCH):
                    found = read_places(fetch, letters.topic, batch)
                    count += self._dead_letters.bring_back(
                        session,
                        marks,
                        letters.group,
                        info.topic_id,
                        [(place, letters.at_home(found[place])) for place in batch if place in found],
                        lambda reason: skipped.update([f"its topic refuses it: {reason}"]),
                    )
        return DeadLetterResult(count, plan.keys, dict(skipped))

    def purge(self, ids: Iterable[str] | None, topic: str | None, *, dry_run: bool) -> DeadLetterResult:
        """Gives the picked ones up; with `dry_run` it only counts them."""
        picks, letters = _picker(ids, topic), self._begin()
        info = self._topic(letters)
        if info is None:
            return DeadLetterResult(0, 0)
        with closing(self._backend.record_fetch()) as fetch:
            if dry_run:
                marks = self._dead_letters.marks(fetch)
                plan, _ = self._dead_letters.plan(self._scan(letters, info, fetch, marks), picks)
                return DeadLetterResult(len(plan), plan.keys)
            marks = ProcessedMarks(fetch)
            with self._dead_letters.session(letters.group, marks) as session:
                plan, bounds = self._dead_letters.plan(self._scan(letters, info, fetch, marks), picks)
                for batch in plan.batches(MARKED):
                    self._dead_letters.store(
                        session, partial(marks.with_more, letters.group, info.topic_id, batch), marks
                    )
        self._backend.admin.trim(letters.topic, {number: at for number, at in bounds.items() if at > 0})
        return DeadLetterResult(len(plan), plan.keys)

    def _topic(self, letters: Letters[T]) -> TopicInfo | None:
        try:
            return self._backend.admin.topic(letters.topic)
        except NotFound:
            return None  # the service was never used

    def _scan(
        self, letters: Letters[T], info: TopicInfo, fetch: RecordFetch, marks: ProcessedMarks
    ) -> DeadLetterScan:
        return DeadLetterScan(fetch, self._backend.admin, info, letters.read, marks)


def _picker(ids: Iterable[str] | None, topic: str | None) -> Callable[[Found], bool]:
    wanted = Selection.of(ids=ids).ids
    return lambda found: (
        (not wanted or not wanted.isdisjoint((place_in_topic(found.record), id_of(found.record))))
        and topic in (None, found.dead_letter.topic)
    )


def place_in_topic(record: StoredRecord) -> str:
    """Returns where a dead letter lies, as users name it."""
    return f"{record.partition()}:{record.offset()}"


def id_of(record: StoredRecord) -> str:
    """Returns the id of a dead letter's message; empty: it has none."""
    return (header_of(record, ID_HEADER) or b"").decode("utf-8", "replace")
