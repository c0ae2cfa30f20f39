"""One partition of a causal topic's inbox: its records, its decisions, and the answers to them.

Rules
1. The consequences of an inbox record are stored together with the position behind it: proposals for all participants,
   messages at home, receipts. A record that can't be written holds up its transaction; it is never left out, unless its
   participant is gone by the catalog (`causal_topics.py`). An inbox that is gone itself writes nothing.
2. A task begins when it has read the inbox up to the end that it had at the takeover: then it has all proposals of its
   predecessor for records that it reads again. Records that find no room meanwhile are read again.
3. The unit of the order is a batch of messages. They come home together, one behind the other (`batches.py`).
4. Each destination writes a receipt when a batch comes home there, which names the messages that it refused. If all
   refuse a batch, because one of them is deleted or gone, the first by name writes it, of those that are left.
5. A sequencer that waits for a participant which the catalog doesn't list says so in its own inbox, and acts when it
   reads that. A look at the catalog counts for records that were taken before it.
6. A record of a newer version isn't passed: the partition waits.
7. Records that can't be delivered go to the topic `DEAD`, with the reason in a header: a record of an inbox that isn't
   ours or is for an earlier one, a message that is too large for its home or whose topic was deleted before it came
   home.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition, PubSubError
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import Committed, NewRecord, StoredRecord, TopicPartition
from kafka_pubsub.multicast.batch import count_of_batch, is_newer_batch
from kafka_pubsub.multicast.batches import Batches
from kafka_pubsub.multicast.bodies import Bodies
from kafka_pubsub.multicast.causal_topics import CausalTopics
from kafka_pubsub.multicast.layout import DEAD, RECEIPTS, place_of
from kafka_pubsub.multicast.progress import SequencerProgress
from kafka_pubsub.multicast.records import (
    DEAD_REASON_HEADER,
    DEAD_TOPIC_HEADER,
    Receipt,
    StageRecord,
    decode_inbox,
    encode_gone,
    encode_proposal,
    encode_receipt,
)
from kafka_pubsub.multicast.sequencer import Sequencer
from kafka_pubsub.multicast.values import Alive, Gone, Output, Proposal, Propose, Refuse, Release
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.role import OF_THE_RECORD, Append, Work
from kafka_pubsub.topics.names import inbox_topic

__all__ = ["Common", "SequencerTask", "not_listed"]

_log = logging.getLogger("kafka_pubsub.service")

#: Records of an inbox that are taken at once.
_TAKE = 2000
#: Why the messages of a batch aren't delivered that can't be read.
_DAMAGED = "its messages can't be read: the record is damaged"
#: Bytes of batches that wait in all inboxes, and in one at least.
_BUFFERS, _LEAST = 64 * 1024 * 1024, 1024 * 1024


def not_listed(inbox: str) -> FailedPrecondition:
    """Returns the error of an inbox that is gone by the catalog."""
    return FailedPrecondition(f"inbox {inbox!r} isn't in the catalog any more, or was made again")


class _Read(NamedTuple):
    """A record of the inbox. `refused`: why it can't be taken, or empty."""

    offset: int
    said: StageRecord | Proposal | Gone | Alive | None
    record: StoredRecord
    refused: str


class _Sent(NamedTuple):
    """The messages of a batch among the records of a work: the numbers of their records."""

    batch: str
    records: range


class _Note(NamedTuple):
    """A note on a work: the position that it commits, the batches that come home, its counts."""

    progress: SequencerProgress
    sent: Sequence[_Sent]
    counts: Mapping[str, int]


class Common:
    """The state that the tasks of one process share. `inboxes`: how many inboxes it serves."""

    def __init__(self, backend: Backend, metrics: ServiceMetrics) -> None:
        self.backend, self.metrics = backend, metrics
        self.causal = CausalTopics(backend)
        self.batches = Batches()
        #: Messages that home topics refused, by participant, batch and number in it. Empty: nothing, as a rule.
        self.refused: dict[tuple[str, str, int], str] = {}
        self.inboxes = 1


class SequencerTask:
    """One partition of an inbox. `end`: where its log ended when the task was made."""

    def __init__(self, common: Common, name: str, progress: SequencerProgress, end: int) -> None:
        self._common, self._name, self._progress, self._end = common, name, progress, end
        self._place = place_of(name)
        self._start = progress.checkpoint
        self._epoch = progress.epoch
        self._own: dict[int, list[Proposal]] = {}
        # None until the predecessor's proposals are read.
        self._sequencer: Sequencer | None = None
        self._read = progress.checkpoint.oldest
        self._waiting: deque[_Read] = deque()
        self._size = 0
        # Where records that are read before the task begins fill the room: from there they are read again.
        self._left_out: int | None = None
        inbox = TopicPartition(inbox_topic(self._place.topic), self._place.partition)
        self._room = max(_LEAST, _BUFFERS // common.inboxes)
        self._bodies = Bodies(common.backend, inbox, self._room)
        # Whether the records were taken by a predecessor as well, which has written their consequences.
        self._again = True
        # Whether our transactional id is committed: before the first record that a successor may have to wait for.
        self._announced = False
        # The position that we committed; None: none yet.
        self._stored: SequencerProgress | None = None
        # The look at the catalog that counts for all that was taken, and the participants that were said to be gone.
        self._looked = common.causal.looks
        self._said_gone: set[str] = set()
        # Of the next work: the bytes of the batches that come home, these, and its counts.
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
            offset = record.offset() or 0
            if offset < self._read:
                continue
            self._read = offset + 1
            read = _read(offset, record)
            if self._sequencer is None and not self._has_room(read):
                continue
            self._waiting.append(read)
            self._size += len(record)
        return self._begin_if_known()

    def _has_room(self, read: _Read) -> bool:
        """Takes our proposals from records read before the task begins; returns whether the rest may wait here."""
        said = read.said
        if isinstance(said, Proposal) and said.timestamp.topic == self._name:
            self._own.setdefault(said.cause, []).append(said)
        if self._left_out is None and self._size >= self._room:
            self._left_out = read.offset
        return self._left_out is None

    def reach(self, topic: int, position: int) -> int | None:
        """Nothing below the position is left to be read."""
        self._read = max(self._read, position)
        return self._begin_if_known()

    def unsure(self) -> Iterable[int]:
        """The inbox, until the predecessor's proposals are read."""
        return (0,) if self._sequencer is None else ()

    def full(self, room: int) -> Iterable[int]:
        """The inbox, if more than `room` bytes wait to be taken."""
        return (0,) if self._sequencer is not None and self._size > room else ()

    def _begin_if_known(self) -> int | None:
        """Begins once all of the predecessor's proposals are read; returns from where to read again, if anywhere."""
        if self._sequencer is not None or self._read < self._end:
            return None
        own = {cause: some for cause, some in self._own.items() if cause < self._start.position}
        self._sequencer = Sequencer(self._name, self._start, own)
        self._own = {}
        if self._left_out is not None:
            self._read = self._left_out
        return self._left_out

    # -- deciding ----------------------------------------------------------------------------------------------

    def write_as(self, writer: str) -> None:
        """Work is written under this transactional id from now on."""
        self._progress, self._announced = self._progress._replace(writer=writer), False

    def work(self, most: int, room: int) -> Work | None:
        """Takes records that were read, until something is to be written; at first only our transactional id."""
        sequencer = self._sequencer
        if sequencer is None:
            return None
        if not self._announced:
            self._announced = True
            return self._work(sequencer, ())
        self._written = 0
        records = self._say_gone(sequencer)
        for taken in range(min(_TAKE, len(self._waiting))):
            if self._waiting[0].refused:
                if records or taken:
                    break
                raise FailedPrecondition(self._waiting[0].refused)
            self._take(sequencer, self._waiting.popleft(), records)
            if len(records) >= most or self._written >= room:
                break
        self._looked = self._common.causal.looks
        return self._work(sequencer, records) if records else None

    def _work(self, sequencer: Sequencer, records: Sequence[NewRecord]) -> Work:
        said = self._progress._replace(checkpoint=sequencer.checkpoint, epoch=self._epoch)
        sent, self._sent = self._sent, []
        counts, self._counts = self._counts, Counter()
        return Work(records, {0: Committed(said.checkpoint.oldest, said.text())}, _Note(said, sent, counts))

    def _say_gone(self, sequencer: Sequencer) -> list[NewRecord]:
        """Says in the inbox which participants are gone that it waits for."""
        causal = self._common.causal
        if causal.looks == self._looked or not sequencer.waiting:
            return []
        gone = {each for each in sequencer.lacking() if not causal.lists(each)} - self._said_gone
        self._said_gone |= gone
        return [self._to(self._name, encode_gone(Gone(each))) for each in sorted(gone)]

    def _take(self, sequencer: Sequencer, read: _Read, records: list[NewRecord]) -> None:
        offset, said, record, _ = read
        self._size -= len(record)
        if offset >= self._start.position:
            self._epoch = record.leader_epoch()
        if self._again and offset >= self._start.position:
            self._again = False
            self._bodies.keep_only(sequencer.holds)
        if said is None or (isinstance(said, StageRecord) and self._name not in said.stage.participants):
            if not self._again:
                self._check_listed()
                self._counts["skipped"] += 1
                self._refuse(records, _as_stored(record), _why_not_ours(read))
            sequencer.pass_over(offset)
            return
        if isinstance(said, StageRecord):
            self._bodies.add(offset, said, record)
            outputs = sequencer.take(offset, said.stage)
        else:
            if isinstance(said, Gone):
                self._said_gone.discard(said.participant)
            outputs = sequencer.take(offset, said)
        for output in outputs:
            self._write(output, records)
        if isinstance(said, StageRecord) and not sequencer.holds(said.stage.message):
            self._bodies.drop(said.stage.message)

    def _check_listed(self) -> None:
        """Raises if the inbox is gone, or was made again: then nothing may be written in its name any more."""
        if not self._common.causal.finds(self._name):
            raise not_listed(inbox_topic(self._place.topic))

    def _write(self, output: Output, records: list[NewRecord]) -> None:
        if isinstance(output, Propose):
            header = encode_proposal(output.proposal)
            self._check_listed()
            finds = self._common.causal.finds
            records += [self._to(name, header) for name in output.topics if finds(name)]
            self._counts["proposals"] += 1
            return
        staged = self._bodies.staged(output.message)
        if isinstance(output, Release):
            buried = self._deliver(output, staged, records)
            why = next(iter(buried.values()), "")
            receipt = Receipt(output.message, output.timestamp, (), self._name, tuple(buried), why)
        else:
            self._counts["refused"] += count_of_batch(self._bodies.record(output.message).value())
            receipt = Receipt(output.message, output.timestamp, output.deleted, self._name)
        if isinstance(output, Release) or self._speaks_for_all(output, staged):
            records.append(NewRecord(RECEIPTS, staged.receipts, None, None, [encode_receipt(receipt)]))
        self._bodies.drop(output.message)

    def _speaks_for_all(self, refused: Refuse, staged: StageRecord) -> bool:
        left = [
            each for each in staged.stage.destinations if refused.timestamp or each not in refused.deleted
        ]
        return self._name == min(left, default="")

    def _to(self, name: str, header: tuple[str, bytes | None]) -> NewRecord:
        place = place_of(name)
        return NewRecord(inbox_topic(place.topic), place.partition, None, None, [header])

    def _deliver(self, output: Release, staged: StageRecord, records: list[NewRecord]) -> dict[int, str]:
        """Writes a batch's messages; returns the numbers of those that the home topic refuses, and why."""
        batch, record = output.message, self._bodies.record(output.message)
        self._written += len(record)
        topic, number, _ = self._place
        messages = self._common.batches.at_home(output, staged.stage, record.value())
        if messages is None:
            self._counts["undeliverable"] += 1
            self._refuse(records, _as_stored(record), _DAMAGED)
            return dict.fromkeys(range(min(count_of_batch(record.value()), _TAKE)), _DAMAGED)
        has_home = self._common.causal.has_home(topic)
        if staged.stage.deletes and not has_home:
            return {}
        self._sent.append(_Sent(batch, range(len(records), len(records) + len(messages))))
        home = [NewRecord(topic, number, key, data, headers, at) for at, key, data, headers in messages]
        if has_home and not self._common.refused:
            self._counts["delivered"] += len(home)
            records += home
            return {}
        buried: dict[int, str] = {}
        for at, each in enumerate(home):
            reason = (
                self._common.refused.get((self._name, batch, at)) if has_home else "its topic was deleted"
            )
            if reason is None:
                records.append(each)
            else:
                buried[at] = reason
                self._refuse(records, each, reason)
        self._counts["undeliverable"] += len(buried)
        self._counts["delivered"] += len(home) - len(buried)
        return buried

    def _refuse(self, records: list[NewRecord], record: NewRecord, reason: str) -> None:
        """Writes records that can't be delivered to the topic of dead letters."""
        _log.error("%s: a dead letter of topic %s: %s", "sequencer", self._place.topic, reason)
        headers = [
            *record.headers,
            (DEAD_TOPIC_HEADER, self._place.topic.encode()),
            (DEAD_REASON_HEADER, reason.encode()),
        ]
        records.append(NewRecord(DEAD, 0, record.key, record.value, headers, record.timestamp))

    # -- the ends of transactions ------------------------------------------------------------------------------

    def last_positions(self) -> Mapping[int, Committed]:
        """The same position without our id: there is nothing of ours to wait for."""
        said = self._stored
        return {} if said is None else {0: Committed(said.checkpoint.oldest, said._replace(writer="").text())}

    def refuse(self, work: Work, number: int, reason: PubSubError) -> None:
        """The home topic won't take a message: it is a dead letter next time, if that is the message's fault."""
        if not isinstance(reason, OF_THE_RECORD):
            return
        for batch, records in _note(work).sent:
            if number in records:
                self._common.refused[self._name, batch, number - records.start] = str(reason)

    def stored(self, work: Work) -> None:
        """A work is stored."""
        note = _note(work)
        self._stored = note.progress
        for name, count in note.counts.items():
            self._common.metrics.count(name, count)
        if self._common.refused:
            for batch, records in note.sent:
                for number in range(len(records)):
                    self._common.refused.pop((self._name, batch, number), None)

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


def _read(offset: int, record: StoredRecord) -> _Read:
    try:
        said = decode_inbox(record.headers() or ())
    except FailedPrecondition as newer:
        return _Read(offset, None, record, f"{_named(record)} {newer.message}")
    if isinstance(said, StageRecord) and is_newer_batch(record.value()):
        return _Read(
            offset, None, record, f"{_named(record)} holds messages of a newer version: run that sequencer"
        )
    return _Read(offset, said, record, "")


def _named(record: StoredRecord) -> str:
    return f"the record at offset {record.offset()} in partition {record.partition()} of {record.topic()!r}"


def _why_not_ours(read: _Read) -> str:
    why = "isn't ours" if read.said is None else "is for an inbox that was here before"
    return f"{_named(read.record)} {why}"


def _as_stored(record: StoredRecord) -> NewRecord:
    """Returns a record's content, for the topic of dead letters."""
    return NewRecord(DEAD, 0, record.key(), record.value(), record.headers() or (), record.timestamp()[1])


def _note(work: Work) -> _Note:
    note = work.note
    assert isinstance(note, _Note)
    return note
