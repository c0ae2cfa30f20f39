"""Lists, replays and purges dead letters.

A replay writes the message to the retry topic of its subscription, in the partition where it was published. The owner
delivers it as any other waiting message: in order of origin within its key, before the messages that wait behind it,
with new attempts. The mark that the dead letter is finished (`processed_marks.py`) is stored in the same transaction,
under the exclusive session (`exclusive_session.py`). So a replay that was interrupted, or got no answer, continues when
you call it again, and replays nothing twice.

Rules
1. A command reads and counts all dead letters before it writes any, so it knows which of them can't be replayed before
   anything changes. The next replay takes the messages that are dead-lettered while this one runs.
2. A replay doesn't change the dead-letter topic. A purge also marks dead letters, and then deletes finished ones from
   the front: never past an unfinished dead letter, a record that isn't a dead letter, or the position of a subscription
   that reads the topic; and never from an adopted topic.
3. Each batch first checks the catalog: nothing is replayed to a subscription that is gone, or while the topic is being
   repartitioned (a repartition ends only when the retry topic holds no message with a key).
4. A dead letter that the retry topic refuses is skipped and counted; the others are replayed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.dead_letters.model import (
    DeadLetterMessage,
    DeadLetterProgress,
    DeadLetterResult,
    Place,
    Selection,
    Tell,
    to_dead_letter,
)
from kafka_pubsub.dead_letters.replay_plan import ReplayPlan
from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PubSubError,
)
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import (
    Ending,
    NewRecord,
    StoredRecord,
    TopicInfo,
    TopicPartition,
)
from kafka_pubsub.subscribe.admin.exclusive_session import ExclusiveSession
from kafka_pubsub.subscribe.admin.subscriptions import SubscriptionAdmin
from kafka_pubsub.subscribe.dead_letters.processed_marks import MARKS_TOPIC, ProcessedMarks, read_marks
from kafka_pubsub.subscribe.dead_letters.scan import DeadLetterScan, Found, Replayable, read_places, reader_of
from kafka_pubsub.subscribe.formats.dead_letter_record import read_dead_letter, replay_headers
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.retry_topics import retry_topic_of
from kafka_pubsub.topics.names import check_subscription_name, check_topic_name

__all__ = ["DeadLetters"]

#: Dead letters in one transaction of a replay, and of a purge, which writes only marks. Either takes some 20 ms.
BATCH = 500
MARKED = 20_000
#: Seconds without any success after which a replay gives up; it can be called again.
GIVE_UP = 60.0
#: Seconds before a transaction that failed is tried again.
PAUSE = 0.5

log = logging.getLogger("kafka_pubsub.deadletter")


class DeadLetters:
    """The dead letters of one cluster's subscriptions."""

    def __init__(
        self,
        backend: Backend,
        subscriptions: SubscriptionAdmin,
        *,
        may_create: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._backend = backend
        self._subscriptions = subscriptions
        self._may_create = may_create
        self._clock = clock
        self._sleep = sleep

    def dead_letters(self, name: str, selection: Selection, topic: str | None) -> Iterator[DeadLetterMessage]:
        """Yields the selected dead letters that are neither replayed nor purged, by partition and offset."""
        record, info = self._look_up(name, topic)
        replayable = self._replayable(record)
        with closing(self._backend.record_fetch()) as fetch:
            for found in DeadLetterScan(fetch, self._backend.admin, info, reader_of(name), self.marks(fetch)):
                if _picks(selection, found):
                    problem = (
                        replayable.problem(found.dead_letter)
                        if replayable
                        else f"subscription {name!r} is gone"
                    )
                    yield to_dead_letter(found.record, found.dead_letter, problem)

    def replay(
        self, name: str, selection: Selection, topic: str | None, tell: Tell, *, dry_run: bool
    ) -> DeadLetterResult:
        """Replays the selected dead letters; with `dry_run` it only counts them."""
        record, info = self._look_up(name, topic)
        if record is None:
            self._subscriptions.record(name)
        record = self._receiving(name)
        skipped: Counter[str] = Counter()
        replayable = self._replayable(record)

        def wanted(found: Found) -> bool:
            problem = replayable.problem(found.dead_letter) if replayable else None
            if problem is not None and _picks(selection, found):
                skipped[problem] += 1
            return problem is None and _picks(selection, found)

        with closing(self._backend.record_fetch()) as fetch:
            marks = ProcessedMarks(fetch)
            if dry_run:
                marks = self.marks(fetch)
                plan, _ = self.plan(
                    DeadLetterScan(fetch, self._backend.admin, info, reader_of(name), marks, _reading(tell)),
                    wanted,
                )
                return DeadLetterResult(len(plan), plan.keys, dict(skipped))
            with self.session(name, marks) as session:
                scan = DeadLetterScan(
                    fetch, self._backend.admin, info, reader_of(name), marks, _reading(tell)
                )
                plan, _ = self.plan(scan, wanted)
                run = _Replay(self, session, marks, fetch, record, info, skipped)
                for batch in plan.batches(BATCH):
                    tell(DeadLetterProgress("replaying", run.count, len(plan)))
                    run.bring_back(batch)
                tell(DeadLetterProgress("replaying", run.count, len(plan)))
                return DeadLetterResult(run.count, plan.keys, dict(skipped))

    def purge(
        self, name: str, selection: Selection, topic: str | None, tell: Tell, *, dry_run: bool
    ) -> DeadLetterResult:
        """Marks the selected dead letters as finished, and deletes finished ones from the front of the topic."""
        _, info = self._look_up(name, topic)
        with closing(self._backend.record_fetch()) as fetch:
            if dry_run:
                scan = DeadLetterScan(
                    fetch, self._backend.admin, info, reader_of(name), self.marks(fetch), _reading(tell)
                )
                plan, _ = self.plan(scan, lambda found: _picks(selection, found))
                return DeadLetterResult(len(plan), plan.keys)
            marks = ProcessedMarks(fetch)
            with self.session(name, marks) as session:
                scan = DeadLetterScan(
                    fetch, self._backend.admin, info, reader_of(name), marks, _reading(tell)
                )
                plan, bounds = self.plan(scan, lambda found: _picks(selection, found))
                done = 0
                for batch in plan.batches(MARKED):
                    tell(DeadLetterProgress("purging", done, len(plan)))
                    self.store(session, partial(marks.with_more, name, info.topic_id, batch), marks)
                    done += len(batch)
                tell(DeadLetterProgress("purging", done, len(plan)))
                self._trim(info, bounds)
                return DeadLetterResult(done, plan.keys)

    # -- the parts of a command ------------------------------------------------------------------------------

    def _look_up(self, name: str, topic: str | None) -> tuple[SubscriptionRecord | None, TopicInfo]:
        """Returns the subscription (None: it is gone, and you named the topic) and its dead-letter topic."""
        check_subscription_name(name)
        if topic is not None:
            check_topic_name(topic)
            record = self._backend.catalog.subscriptions().get(name)
            record = None if record is None or record.state != "ready" else record
        else:
            record = self._subscriptions.record(name)
            policy = record.options.dead_letter
            if policy is None:
                raise FailedPrecondition(
                    f"subscription {name!r} has no dead-letter policy, so it makes no dead letters: if it had a policy "
                    "before, give the dead-letter topic of that policy (topic=)"
                )
            topic = policy.topic
        try:
            return record, self._backend.admin.topic(topic)
        except NotFound as error:
            raise NotFound(
                f"dead-letter topic {topic!r} of subscription {name!r} doesn't exist: check the name; if the topic was "
                "deleted, its dead letters are gone"
            ) from error

    def _receiving(self, name: str) -> SubscriptionRecord:
        """Returns the subscription's record, after a check that dead letters can be replayed to it."""
        record = self._subscriptions.usable(name)
        self.check_unchanged(record)
        return record

    def check_unchanged(self, record: SubscriptionRecord) -> None:
        """Raises an error if the subscription or its topic is gone or changed, or the topic is being repartitioned."""
        now = self._subscriptions.record(record.name)
        if _retry_id(now) != _retry_id(record):
            raise FailedPrecondition(
                f"the retry topic of subscription {record.name!r} was changed: try again"
            )
        topic = self._backend.catalog.topics().get(record.topic)
        if now.topic_id != record.topic_id or topic is None or topic.topic_id != record.topic_id:
            raise NotFound(
                f"topic {record.topic!r}, which these dead letters were published to, was deleted: they can't go "
                "back; they stay where they are"
            )
        if topic.repartition is not None or topic.options.partitions != record.partitions:
            raise FailedPrecondition(
                f"topic {record.topic!r} is being repartitioned, which waits until nothing is in the retry topic: "
                "replay when that is through"
            )

    def _replayable(self, record: SubscriptionRecord | None) -> Replayable | None:
        if record is None:
            return None
        found: dict[tuple[str, int], int] = {}
        for view in self.views(record):
            places = [TopicPartition(view.topic, number) for number in range(view.partitions)]
            with suppress(NotFound):
                ends = self._backend.admin.high_watermarks(places)
                found |= {(view.topic_id, place.partition): end for place, end in ends.items()}
        return Replayable(record, found)

    def views(self, record: SubscriptionRecord) -> Iterable[SubscriptionRecord]:
        """Returns the subscription as each lane of its topic sees it."""
        return Layout(record, self._backend.catalog.topics().get(record.topic)).views.values()

    def marks(self, fetch: RecordFetch) -> ProcessedMarks:
        """Reads the current marks, for a command that changes nothing."""
        return read_marks(self._backend.admin, fetch)

    def session(self, name: str, marks: ProcessedMarks) -> ExclusiveSession:
        """Returns the exclusive session of a subscription, or of the delay routers; use it in a `with` block."""
        return ExclusiveSession(self._backend, name, marks, may_create=self._may_create, clock=self._clock)

    def plan(
        self, scan: DeadLetterScan, wanted: Callable[[Found], bool]
    ) -> tuple[ReplayPlan, dict[int, int]]:
        """Returns the selected dead letters, and for each partition the offset of the first record that stays."""
        plan = ReplayPlan()
        kept: dict[int, int] = {}
        for found in scan:
            place, origin = found.place, found.dead_letter.origin
            if wanted(found):
                home, offset = ("", -1), 0
                if origin is not None:
                    home, offset = (origin.topic_id, origin.partition), origin.offset
                plan.add(place, found.record.key(), home, offset)
            else:
                kept.setdefault(*place)
        return plan, {number: min(end, kept.get(number, end)) for number, end in scan.bounds.items()}

    def store(
        self, session: ExclusiveSession, build: Callable[[], Sequence[NewRecord]], marks: ProcessedMarks
    ) -> None:
        """Stores the records that `build` makes from the current marks; an empty list: they are already stored."""
        until = self._clock() + GIVE_UP
        while records := build():
            outcome = session.store(records)
            if outcome.ending is Ending.STORED:
                marks.add([each for each in records if each.topic == MARKS_TOPIC])
                return
            reason = outcome.reason or BrokerUnavailable("the log didn't say what became of a transaction")
            passes = isinstance(reason, (BrokerUnavailable, DeadlineExceeded, FailedPrecondition))
            if not passes or self._clock() > until:
                raise reason
            log.warning("dead letters: trying again: %s", reason.message)
            self._sleep(PAUSE)
            session.sit_down()

    def bring_back(
        self,
        session: ExclusiveSession,
        marks: ProcessedMarks,
        name: str,
        topic_id: str,
        records: Sequence[tuple[Place, Sequence[NewRecord]]],
        refused: Callable[[str], object],
    ) -> int:
        """Stores what brings dead letters back, with their marks; returns how many; `refused` gets why one isn't."""

        def build() -> Sequence[NewRecord]:
            left = [each for each in records if not marks.has(topic_id, *each[0])]
            done = marks.with_more(name, topic_id, [place for place, _ in left])
            return [*(record for _, some in left for record in some), *done] if left else []

        try:
            if records:
                self.store(session, build, marks)
        except InvalidArgument as refusal:
            if len(records) == 1:
                refused(refusal.message)
                return 0
            # An aborted producer can't be used again. Taking the session again also notices a newer command.
            session.sit_down()
            half = len(records) // 2
            return sum(
                self.bring_back(session, marks, name, topic_id, some, refused)
                for some in (records[:half], records[half:])
            )
        return len(records)

    def _trim(self, info: TopicInfo, bounds: dict[int, int]) -> None:
        """Deletes the records below the bounds, as far as rule 2 allows."""
        known = self._backend.catalog.topics().get(info.name)
        if known is None or known.adopted:
            return
        for each in self._backend.catalog.subscriptions().values():
            if each.topic == info.name and each.topic_id == info.topic_id and not each.detached:
                stored = self._backend.admin.group_offsets(each.name, info.name)
                for number, bound in bounds.items():
                    at = stored[number].offset if number in stored else None
                    bounds[number] = min(bound, each.positions.get(number, 0) if at is None else at)
        try:
            self._backend.admin.trim(info.name, {number: at for number, at in bounds.items() if at > 0})
        except PubSubError as error:
            log.warning("what is done with in %r isn't deleted: %s", info.name, error.message)


class _Replay:
    """One replay that is running."""

    def __init__(
        self,
        dead_letters: DeadLetters,
        session: ExclusiveSession,
        marks: ProcessedMarks,
        fetch: RecordFetch,
        record: SubscriptionRecord,
        info: TopicInfo,
        skipped: Counter[str],
    ) -> None:
        self._dead_letters = dead_letters
        self._session = session
        self._marks = marks
        self._fetch = fetch
        self._record = record
        # By the id of the topic or lane.
        self._retries = {view.topic_id: retry_topic_of(view) for view in dead_letters.views(record)}
        self._info = info
        self._skipped = skipped
        #: The number of dead letters replayed so far.
        self.count = 0

    def bring_back(self, places: Sequence[Place]) -> None:
        """Replays the dead letters at these places, in this order."""
        self._dead_letters.check_unchanged(self._record)
        bodies = read_places(self._fetch, self._info.name, places)
        if gone := len(places) - len(bodies):
            self._skipped["it was deleted from the dead-letter topic meanwhile"] += gone
        records = [(place, [self._back(bodies[place])]) for place in places if place in bodies]
        name, topic_id = self._record.name, self._info.topic_id
        self.count += self._dead_letters.bring_back(
            self._session, self._marks, name, topic_id, records, self._skip
        )

    def _skip(self, reason: str) -> None:
        self._skipped[f"the retry topic refuses it: {reason}"] += 1

    def _back(self, record: StoredRecord) -> NewRecord:
        dead_letter = read_dead_letter(record.headers())
        if dead_letter is None or dead_letter.origin is None:
            raise InvalidArgument(
                f"{record.topic()}:{record.partition()}:{record.offset()} is no dead letter"
            )
        headers = replay_headers(record, dead_letter.origin)
        return NewRecord(
            self._retries[dead_letter.origin.topic_id],
            dead_letter.origin.partition,
            record.key(),
            record.value(),
            headers,
            record.timestamp()[1],
        )


def _retry_id(record: SubscriptionRecord) -> str:
    return "" if record.retry_topic is None else record.retry_topic.topic_id


def _picks(selection: Selection, found: Found) -> bool:
    dead_letter = found.dead_letter

    def ids() -> Iterable[str]:
        letter = to_dead_letter(found.record, dead_letter, None)
        return filter(None, (letter.id, letter.message_id))

    return selection.picks(
        ids,
        found.record.key(),
        dead_letter.time,
        lambda: f"{dead_letter.reason}\n{dead_letter.error_class}: {dead_letter.error}",
    )


def _reading(tell: Tell) -> Callable[[int, int], object]:
    return lambda done, total: tell(DeadLetterProgress("reading", done, total))
