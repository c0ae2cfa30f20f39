"""What waits in the inboxes of causal topics, and for what, read from the logs alone.

Theory. What is committed of an inbox is its sequencer's checkpoint, and all that the sequencer knows follows from that
and from the records below its position (`multicast/sequencer.py`). So its state is made again here.

Rules
1. What is committed is read before the log's end. Records above the position are those that no sequencer has handled.
2. A message is held up by the participants whose proposals aren't in the inbox. If all are there, its own topic holds
   it up: its sequencer hasn't handled them.
3. An inbox from which the oldest messages were deleted during the look is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from kafka_pubsub.config import TopicRecord
from kafka_pubsub.errors import FailedPrecondition, NotFound
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.multicast.batch import count_of_batch
from kafka_pubsub.multicast.layout import GROUP, participant, place_of
from kafka_pubsub.multicast.progress import parse_progress
from kafka_pubsub.multicast.records import StageRecord, decode_inbox
from kafka_pubsub.multicast.sequencer import START, Checkpoint, Sequencer
from kafka_pubsub.multicast.values import Proposal, Said, Stage
from kafka_pubsub.subscribe.dead_letters.scan import AT_ONCE, read_all
from kafka_pubsub.topics.names import inbox_topic

__all__ = ["CausalBlock", "CausalStatus", "look_at_causal_topic"]

#: How often an inbox is looked at that is trimmed meanwhile.
_LOOKS = 5


class CausalBlock(NamedTuple):
    """The message that all others of a causal topic's partition wait for.

    `message_id`: its id; of messages that were staged together, the first one's. `topics`: where it goes. `since`: when
    it was staged. `held_by`: the topics whose sequencers have to act next; a partition above 0 is named as
    `orders/3`.
    """

    message_id: str
    topics: tuple[str, ...]
    since: datetime
    held_by: tuple[str, ...]


class CausalStatus(NamedTuple):
    """How one partition of a causal topic is.

    `clock`: its clock. `pending`: how many messages are staged and not delivered. `unread`: how many records of its
    inbox no sequencer has handled. `uncommitted`: how many records there belong to open transactions or lie behind one.
    `block`: the message that the others wait for; None: nothing is pending. `deleted`: whether the topic was deleted,
    so that messages to it are refused. `problem`: what must be mended before anything is delivered, or empty.
    """

    topic: str
    partition: int
    clock: int = 0
    pending: int = 0
    unread: int = 0
    uncommitted: int = 0
    block: CausalBlock | None = None
    deleted: bool = False
    problem: str = ""


def look_at_causal_topic(
    backend: Backend,
    fetch: RecordFetch,
    topic: TopicRecord,
    on_read: Callable[[int], object] = lambda count: None,
) -> Iterator[CausalStatus]:
    """Yields how each partition is; `on_read` gets the number of records that were read since its last call."""
    admin, inbox = backend.admin, inbox_topic(topic.name)
    try:
        made_again = admin.topic(inbox).topic_id != topic.inbox_id
    except NotFound:
        yield CausalStatus(topic.name, 0, problem=f"no broker finds its inbox {inbox!r}")
        return
    if made_again:
        problem = f"its inbox {inbox!r} was deleted and made again by another client"
        yield CausalStatus(topic.name, 0, problem=problem)
        return
    for number in range(topic.options.partitions):
        look = _Look(backend, fetch, topic, number, on_read)
        try:
            yield look.status(topic.state == "deleting")
        except FailedPrecondition as unreadable:
            yield CausalStatus(topic.name, number, problem=unreadable.message)


class _Look:
    """One look at a partition of an inbox."""

    def __init__(
        self,
        backend: Backend,
        fetch: RecordFetch,
        topic: TopicRecord,
        number: int,
        on_read: Callable[[int], object],
    ) -> None:
        self._admin, self._fetch, self._on_read = backend.admin, fetch, on_read
        self._topic, self._name = topic.name, participant(topic.name, number, topic.inbox_id)
        self._place = TopicPartition(inbox_topic(topic.name), number)

    def status(self, deleted: bool) -> CausalStatus:
        """Returns what was found."""
        for _ in range(_LOOKS):
            committed = self._admin.group_offsets(GROUP, self._place.topic).get(self._place.partition)
            start = self._admin.log_range(self._place)[0]
            if committed is not None and committed.offset is not None and committed.offset >= start:
                return self._read(parse_progress(committed.offset, committed.metadata).checkpoint, deleted)
            if start == 0:
                return self._read(START, deleted)
        problem = f"the broker has forgotten how far the sequencers were with {self._place.topic!r}"
        return CausalStatus(self._topic, self._place.partition, deleted=deleted, problem=problem)

    def _read(self, checkpoint: Checkpoint, deleted: bool) -> CausalStatus:
        end = self._admin.last_stable_offsets(self._place.topic)[self._place.partition]
        top = self._admin.high_watermarks([self._place])[self._place]
        inbox = _Inbox(self._name, checkpoint)
        for at in range(checkpoint.oldest, end, AT_ONCE):
            chunk = list(read_all(self._fetch, self._place, list(range(at, min(end, at + AT_ONCE)))))
            self._on_read(len(chunk))
            for record in chunk:
                inbox.take(record)
        sequencer = inbox.replay()
        return CausalStatus(
            self._topic,
            self._place.partition,
            sequencer.clock,
            inbox.pending(sequencer),
            inbox.unread,
            max(0, top - end),
            inbox.block(sequencer),
            deleted,
        )


class _Inbox:
    """The records of an inbox from the oldest message that wasn't released at the checkpoint."""

    def __init__(self, name: str, checkpoint: Checkpoint) -> None:
        self._name, self._checkpoint = name, checkpoint
        self._handled: list[tuple[int, Said]] = []
        self._own: dict[int, list[Proposal]] = {}
        # By the message: its stage, and when that was written.
        self._stages: dict[str, tuple[Stage, int]] = {}
        # The participants that have proposed for each of these above the position.
        self._later: dict[str, set[str]] = {}
        self._first: tuple[Stage, int] | None = None
        # How many messages each batch has, and how many all have that no sequencer has handled.
        self._counts: dict[str, int] = {}
        self._unhandled = 0
        self.unread = 0

    def take(self, record: StoredRecord) -> None:
        """Takes the next record."""
        offset, said = record.offset() or 0, decode_inbox(record.headers() or ())
        handled = offset < self._checkpoint.position
        self.unread += not handled
        if isinstance(said, StageRecord):
            self._counts[said.stage.message] = count_of_batch(record.value())
            self._take_stage(offset, said.stage, record.timestamp()[1], handled=handled)
        elif isinstance(said, Proposal):
            self._take_proposal(offset, said, handled=handled)
        elif said is not None and handled:
            self._handled.append((offset, said))

    def _take_stage(self, offset: int, stage: Stage, time: int, *, handled: bool) -> None:
        if self._name not in stage.participants:
            return
        if handled:
            self._stages.setdefault(stage.message, (stage, time))
            self._handled.append((offset, stage))
        elif stage.message not in self._stages:
            self._first = self._first or (stage, time)
            self._unhandled += self._counts[stage.message]

    def _take_proposal(self, offset: int, proposal: Proposal, *, handled: bool) -> None:
        name = proposal.timestamp.topic
        if name == self._name and proposal.cause < self._checkpoint.position:
            self._own.setdefault(proposal.cause, []).append(proposal)
        if handled:
            self._handled.append((offset, proposal))
        elif proposal.message in self._stages:
            self._later.setdefault(proposal.message, set()).add(name)

    def replay(self) -> Sequencer:
        """Returns the topic's sequencer as it is at its position."""
        sequencer = Sequencer(self._name, self._checkpoint, self._own)
        for offset, record in self._handled:
            sequencer.take(offset, record)
        return sequencer

    def pending(self, sequencer: Sequencer) -> int:
        """Returns how many messages are staged and not delivered."""
        held = sum(count for name, count in self._counts.items() if sequencer.holds(name))
        return held + self._unhandled

    def block(self, sequencer: Sequencer) -> CausalBlock | None:
        """Returns the message that the others wait for."""
        first = sequencer.blocked()
        if first is None:
            return None if self._first is None else _block(*self._first, (self._name,))
        message, lacks = first
        missing = tuple(each for each in lacks if each not in self._later.get(message, ()))
        return _block(*self._stages[message], missing or (self._name,))


def _block(stage: Stage, time: int, held_by: tuple[str, ...]) -> CausalBlock:
    since = datetime.fromtimestamp(time / 1000, UTC)
    return CausalBlock(f"{stage.message}.0", _shown(stage.destinations), since, _shown(held_by))


def _shown(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the topics of participants, with the partition where it isn't 0."""
    places = map(place_of, names)
    return tuple(f"{each.topic}/{each.partition}" if each.partition else each.topic for each in places)
