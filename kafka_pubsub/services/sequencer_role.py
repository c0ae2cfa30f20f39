"""The sequencer of causal topics: `core/multicast` on the service's engine, a task for each partition of an inbox.

Rules
1. What a record of an inbox leads to is stored together with the position behind it: proposals for all participants,
   messages at home, receipts.
2. A task begins when it has read the proposals that its predecessor made for what it reads again.
3. What is ordered is a batch of messages. They come home together, one behind the other (`sequencer_batches.py`).
4. One destination writes the receipt: the first by name.
5. What can't be delivered goes to the topic `DEAD` as it is, with the reason in a header: a record of an inbox that we
   didn't write or can't read, and a message that its home topic refuses, because that was deleted or takes smaller
   ones only.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka_pubsub.client.admin.names import inbox_topic
from kafka_pubsub.core.multicast.layout import DEAD, GROUP, RECEIPTS, participant, place_of
from kafka_pubsub.core.multicast.progress import SequencerProgress, parse_progress
from kafka_pubsub.core.multicast.sequencer import START, Sequencer
from kafka_pubsub.core.multicast.values import Output, Proposal, Propose, Release
from kafka_pubsub.errors import Call, FailedPrecondition, InvalidArgument, NotFound
from kafka_pubsub.model import Committed, NewRecord, StoredRecord, TopicPartition
from kafka_pubsub.ports import Backend
from kafka_pubsub.schema.batch import decode_batch
from kafka_pubsub.schema.multicast import (
    DEAD_REASON_HEADER,
    DEAD_TOPIC_HEADER,
    Receipt,
    StageRecord,
    decode_proposal,
    decode_stage,
    encode_proposal,
    encode_receipt,
)
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.role import Append, Beginning, Work
from kafka_pubsub.services.sequencer_batches import Batches

__all__ = ["SequencerRole", "SequencerTask", "causal_inboxes"]

_log = logging.getLogger("kafka_pubsub.service")

#: Records of an inbox that are taken at once, and seconds between two looks for new topics.
_TAKE, _LOOK = 2000, 1.0


def causal_inboxes(backend: Backend) -> dict[str, tuple[str, str]]:
    """Returns the inboxes that there are, with the names and ids of their topics."""
    there = set(backend.admin.topic_names())
    records = [each for each in backend.catalog.topics().values() if each.options.causal and each.topic_id]
    found = {inbox_topic(each.name): (each.name, each.topic_id) for each in records}
    return {inbox: found[inbox] for inbox in sorted(found) if inbox in there}


class SequencerRole:
    """What a sequencer does, for the causal topics that there are now."""

    name = "sequencer"
    group = GROUP
    at_once = 12_000
    #: A topic that another client has deleted from Kafka would hold up its own deletion, which the order has, too.
    of_the_record = (InvalidArgument, FailedPrecondition, NotFound)
    kept = ()

    def __init__(self, backend: Backend, metrics: ServiceMetrics) -> None:
        self._backend = backend
        self.metrics = metrics
        self._inboxes: dict[str, tuple[str, str]] = {}
        self._partitions: dict[str, int] = {}
        self.sets: list[tuple[str]] = []
        # A topic was deleted, or made again.
        self._has_lost = False
        self._look_at = time.monotonic() + _LOOK
        self._take_up(causal_inboxes(backend))
        self.batches = Batches()
        #: What home topics refused, by participant, batch and number in it. Empty: nothing, as a rule.
        self.refused: dict[tuple[str, str, int], str] = {}

    def grow(self) -> bool:
        """Looks once a second for other causal topics, and takes new ones up."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _LOOK
        found = causal_inboxes(self._backend)
        if not found.items() >= self._inboxes.items():
            self._has_lost = True
            return False
        grows = len(found) > len(self._inboxes)
        if grows:
            self._take_up(found)
        return grows

    def outdated(self) -> bool:
        """Whether a causal topic was deleted, or made again."""
        return self._has_lost

    def _take_up(self, inboxes: dict[str, tuple[str, str]]) -> None:
        for inbox in inboxes.keys() - self._partitions.keys():
            self._partitions[inbox] = self._backend.admin.topic(inbox).partitions
        self._inboxes = inboxes
        self.sets = [(inbox,) for inbox in inboxes]

    def writer_of(self, committed: Sequence[Committed]) -> str | None:
        """The id that the commit names."""
        offset, text, _ = committed[0]
        return None if offset is None else parse_progress(offset, text).writer or None

    def begin(
        self, topics: Sequence[str], number: int, beginnings: Sequence[Beginning], writer: str
    ) -> SequencerTask:
        """The task of a partition; refuses to guess where commits are missing."""
        (inbox,), (beginning,) = topics, beginnings
        topic, topic_id = self._inboxes[inbox]
        if beginning.committed.offset is None and (beginning.start > 0 or self._has_delivered(topic, number)):
            delete, make = Call("delete_topic", topic), Call("create_topic", topic, (("causal", True),))
            raise FailedPrecondition(
                f"sequencer: group {GROUP!r} has no offset for partition {number} of {inbox!r}, although messages have "
                "passed it: the broker has forgotten it, as it does a week after the last sequencer has ended "
                "(offsets.retention.minutes). Nothing is delivered, because it isn't known what was: read what "
                f"topic {topic!r} holds, then {delete}, and {make}",
                calls=(delete, make),
            )
        progress = parse_progress(beginning.committed.offset or 0, beginning.committed.metadata)
        if progress.topic_id not in ("", topic_id):
            again = progress.checkpoint.oldest > beginning.end  # the inbox was made again, too
            checkpoint = START if again else progress.checkpoint._replace(deleted=None)
            progress = progress._replace(checkpoint=checkpoint, unread=0 if again else progress.unread)
        progress = progress._replace(topic_id=topic_id)
        name = participant(topic, number, self._partitions[inbox])
        return SequencerTask(self, name, number, progress, writer)

    def has_inbox(self, topic: str) -> bool:
        """Whether the topic has an inbox; one that wasn't there at the last look is looked for."""
        inbox = inbox_topic(topic)
        if inbox in self._inboxes:
            return True
        try:
            self._backend.admin.topic(inbox)
        except NotFound:
            return False
        return True

    def _has_delivered(self, topic: str, number: int) -> bool:
        """Whether a sequencer has written to the home partition: only sequencers may."""
        place = TopicPartition(topic, number)
        try:
            return self._backend.admin.log_range(place)[1] > 0
        except NotFound:  # it was deleted by hand; then nothing can come home twice
            return False

    def trimmable(self, positions: Mapping[int, Committed]) -> Mapping[int, int]:
        """Everything below the oldest message that isn't released."""
        return {topic: to.offset for topic, to in positions.items() if to.offset}


class _Read(NamedTuple):
    offset: int
    said: StageRecord | Proposal | None
    record: StoredRecord


class _Sent(NamedTuple):
    """The messages of a batch among the records of a work: the numbers of their records."""

    batch: str
    records: range


class _Note(NamedTuple):
    """What a work is: the position that it commits, the batches that come home, what it counts."""

    progress: SequencerProgress
    sent: Sequence[_Sent]
    counts: Mapping[str, int]


class SequencerTask:
    """One partition of an inbox."""

    def __init__(
        self, role: SequencerRole, name: str, number: int, progress: SequencerProgress, writer: str
    ) -> None:
        self._role, self._name, self._number, self._writer = role, name, number, writer
        self._topic = place_of(name)[0]
        self._start, self._topic_id = progress.checkpoint, progress.topic_id
        # Own proposals that lie above the position: those that must still be found, and those that must be passed.
        self._missing = self._unread = progress.unread
        self._own: dict[int, list[Proposal]] = {}
        # None until the predecessor's proposals are read.
        self._sequencer: Sequencer | None = None
        self._read = progress.checkpoint.oldest
        self._waiting: deque[_Read] = deque()
        self._size = 0
        # The records of the batches that aren't released, by their names.
        self._bodies: dict[str, tuple[StageRecord, StoredRecord]] = {}
        # Whether what is taken was taken by a predecessor as well, which has written what followed.
        self._again = True
        # Whether our transactional id is committed: before the first record that a successor may have to wait for.
        self._announced = False
        # What is committed by us; None: nothing is yet.
        self._stored: SequencerProgress | None = None
        # Of the next work: the bytes of the batches that come home, these, and what it counts.
        self._written = 0
        self._sent: list[_Sent] = []
        self._counts: Counter[str] = Counter()

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def positions(self) -> Sequence[int]:
        """From where to read on."""
        return (self._read,)

    def receive(self, topic: int, records: Sequence[StoredRecord], now: int) -> int | None:
        """Takes records of the inbox."""
        for record in records:
            offset, headers = record.offset() or 0, record.headers() or ()
            if offset < self._read:
                continue
            self._read = offset + 1
            said = decode_stage(headers) or decode_proposal(headers)
            self._waiting.append(_Read(offset, said, record))
            self._size += len(record)
            if self._sequencer is None and isinstance(said, Proposal):
                self._recall(offset, said)
        self._begin_if_known()
        return None

    def reach(self, topic: int, position: int) -> None:
        """Nothing below the position is left to be read."""
        self._read = max(self._read, position)
        self._begin_if_known()

    def unsure(self) -> Iterable[int]:
        """The inbox, until the predecessor's proposals are read."""
        return (0,) if self._sequencer is None else ()

    def full(self, room: int) -> Iterable[int]:
        """The inbox, if more than `room` bytes wait to be taken."""
        return (0,) if self._sequencer is not None and self._size > room else ()

    def _recall(self, offset: int, proposal: Proposal) -> None:
        if proposal.timestamp.topic != self._name:
            return
        if proposal.cause < self._start.position:
            self._own.setdefault(proposal.cause, []).append(proposal)
        if offset >= self._start.position:
            self._missing -= 1

    def _begin_if_known(self) -> None:
        if self._sequencer is None and self._missing <= 0 and self._read >= self._start.position:
            self._sequencer = Sequencer(self._name, self._start, self._own)

    # -- deciding ----------------------------------------------------------------------------------------------

    def write_as(self, writer: str) -> None:
        """What comes now is written under this transactional id."""
        self._writer, self._announced = writer, False

    def work(self, most: int, room: int) -> Work | None:
        """Takes what was read, until something is to be written; at first only our transactional id."""
        sequencer = self._sequencer
        if sequencer is None:
            return None
        if not self._announced:
            self._announced = True
            return self._work(sequencer, ())
        records: list[NewRecord] = []
        self._written = 0
        for _ in range(min(_TAKE, len(self._waiting))):
            self._take(sequencer, self._waiting.popleft(), records)
            if len(records) >= most or self._written >= room:
                break
        return self._work(sequencer, records) if records else None

    def _work(self, sequencer: Sequencer, records: Sequence[NewRecord]) -> Work:
        said = SequencerProgress(sequencer.checkpoint, self._unread, self._writer, self._topic_id)
        sent, self._sent = self._sent, []
        counts, self._counts = self._counts, Counter()
        return Work(records, {0: Committed(said.checkpoint.oldest, said.text())}, _Note(said, sent, counts))

    def _take(self, sequencer: Sequencer, read: _Read, records: list[NewRecord]) -> None:
        offset, said, record = read
        self._size -= len(record)
        if self._again and offset >= self._start.position:
            self._again = False
            self._bodies = {each: body for each, body in self._bodies.items() if sequencer.holds(each)}
        if said is None:
            if not self._again:
                self._skip(read, records)
            sequencer.pass_over(offset)
            return
        if isinstance(said, StageRecord):
            stage = said.stage
            if stage.deletes == self._topic:
                stage = stage._replace(deletes=self._name)
            self._bodies.setdefault(stage.message, (said, record))
            outputs = sequencer.take(offset, stage)
        else:
            if said.timestamp.topic == self._name and offset >= self._start.position:
                self._unread -= 1
            outputs = sequencer.take(offset, said)
        for output in outputs:
            self._write(output, records)
        if isinstance(said, StageRecord) and not sequencer.holds(said.stage.message):
            self._bodies.pop(said.stage.message, None)

    def _write(self, output: Output, records: list[NewRecord]) -> None:
        if isinstance(output, Propose):
            self._unread += 1
            header = [encode_proposal(output.proposal)]
            for name in output.topics:
                topic, number = place_of(name)
                if not self._role.has_inbox(topic):
                    continue  # another client has deleted it: nothing reads there any more
                records.append(NewRecord(inbox_topic(topic), number, None, None, header))
            self._counts["proposals"] += 1
            return
        staged, record = self._bodies.pop(output.message)
        self._written += len(record)
        refused: tuple[str, ...] = ()
        if isinstance(output, Release):
            self._deliver(output, staged, record, records)
        else:
            refused = output.deleted
            self._counts["refused"] += len(decode_batch(record.value()) or ())
        if self._name == min(staged.stage.destinations):
            receipt = encode_receipt(Receipt(output.message, output.timestamp, refused))
            records.append(NewRecord(RECEIPTS, staged.receipts, None, None, [receipt]))

    def _deliver(
        self, output: Release, staged: StageRecord, record: StoredRecord, records: list[NewRecord]
    ) -> None:
        topic, number, batch = self._topic, self._number, output.message
        messages = self._role.batches.at_home(output, staged.stage, record.value())
        if messages is None:
            self._counts["undeliverable"] += 1
            reason = "its messages can't be read: the record is damaged, or of a newer version"
            self._bury(records, _as_stored(record), reason)
            return
        self._sent.append(_Sent(batch, range(len(records), len(records) + len(messages))))
        home = [NewRecord(topic, number, key, data, headers, at) for at, key, data, headers in messages]
        if not self._role.refused:
            records += home
            self._counts["delivered"] += len(home)
            return
        for at, each in enumerate(home):
            reason = self._role.refused.get((self._name, batch, at), "")
            if reason:
                self._bury(records, each, reason)
            else:
                records.append(each)
            self._counts["undeliverable" if reason else "delivered"] += 1

    def _skip(self, read: _Read, records: list[NewRecord]) -> None:
        self._counts["skipped"] += 1
        place = f"record {read.offset} of partition {self._number} of {inbox_topic(self._topic)}"
        self._bury(records, _as_stored(read.record), f"{place} isn't ours, or of a newer version")

    def _bury(self, records: list[NewRecord], record: NewRecord, reason: str) -> None:
        """Writes what can't be delivered to the topic of dead letters."""
        _log.error("%s: a dead letter of topic %s: %s", self._role.name, self._topic, reason)
        headers = [
            *record.headers,
            (DEAD_TOPIC_HEADER, self._topic.encode()),
            (DEAD_REASON_HEADER, reason.encode()),
        ]
        records.append(NewRecord(DEAD, 0, record.key, record.value, headers, record.timestamp))

    # -- the ends of transactions ------------------------------------------------------------------------------

    def farewell(self) -> Mapping[int, Committed]:
        """The same position without our id: there is nothing of ours to wait for."""
        said = self._stored
        return {} if said is None else {0: Committed(said.checkpoint.oldest, said._replace(writer="").text())}

    def refuse(self, work: Work, number: int, reason: str) -> None:
        """The home topic won't take a message: it is a dead letter next time."""
        for batch, records in _note(work).sent:
            if number in records:
                self._role.refused[self._name, batch, number - records.start] = reason

    def stored(self, work: Work) -> None:
        """A work is stored."""
        note = _note(work)
        self._stored = note.progress
        for name, count in note.counts.items():
            self._role.metrics.count(name, count)
        if self._role.refused:
            for batch, records in note.sent:
                for number in range(len(records)):
                    self._role.refused.pop((self._name, batch, number), None)

    def append(self, now: int) -> Append | None:
        """Nothing is written outside of transactions."""
        return None

    def appended(self, record: StoredRecord, now: int) -> None:
        """Nothing was."""

    def awaits(self) -> bool:
        """Nothing was appended."""
        return False

    def wakeup_at(self) -> int | None:
        """Now if there is something to be taken."""
        ready = self._sequencer is not None and (self._waiting or not self._announced)
        return 0 if ready else None


def _as_stored(record: StoredRecord) -> NewRecord:
    """Returns what a record holds, for the topic of dead letters."""
    return NewRecord(DEAD, 0, record.key(), record.value(), record.headers() or (), record.timestamp()[1])


def _note(work: Work) -> _Note:
    note = work.note
    assert isinstance(note, _Note)
    return note
