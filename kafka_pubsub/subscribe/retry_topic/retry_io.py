"""A stream's requests to its retry topic: moves, reads of bodies, and deletions of records that aren't needed.

The core decides which records are moved, read again or deleted. These requests wait for the log, so they run on
threads of their own (`transaction_thread`, `body_reader`), which post the answers to the runner.

Rules
1. The runner asks and never waits. The fetcher gives partitions up, so it may `wait` for the results of their moves.
2. An answer names the ownership (epoch) that asked. Under a newer ownership the answer means nothing.
3. A stream writes under two transactional ids of its own: one for moves, one for dead letters
   (`dead_letter_writer`). Both contain the number that the stream's commits carry. So a new owner that waits for an
   open transaction knows which stream opened it, and ends the transactions of both ids.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Protocol, cast

from kafka_pubsub.config import DeadLetterPolicy, SubscriptionRecord
from kafka_pubsub.errors import (
    BrokerUnavailable,
    Call,
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    PubSubError,
)
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import (
    Committed,
    Ending,
    LogEnd,
    Membership,
    NewRecord,
    StoredRecord,
    TopicInfo,
    TopicPartition,
)
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Named
from kafka_pubsub.subscribe.partition.effects import MovedRecord, StoreMoves, WriteDeadLetters
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints
from kafka_pubsub.subscribe.retry_topic.body_reader import BodyReader, BodyRequest, FoundBodies
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import checkpoints_of, newest
from kafka_pubsub.subscribe.retry_topic.dead_letter_writer import DeadLetterWriter, Written
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.lost_tails import Findings, look
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveRequest, MoveResult, TransactionThread

__all__ = [
    "MOVE_WAIT",
    "Answers",
    "RetryIO",
    "dead_letter_id",
    "identity_of",
    "transactional_id",
]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds that the fetcher waits for a partition's move request before it gives the partition up: about a hundred
#: times what a move takes. The group waits as long.
MOVE_WAIT = 4.0
#: Seconds for ending the transaction that a dead owner left open: a broker needs about one.
FENCING = 10.0
#: The same for the dead owner's dead letters. While their topic is away the call doesn't return, but the broker
#: settles the positions at the beginning of the call.
DEAD_LETTERS_FENCING = 2.0
#: Seconds for a check of the end of a log.
CHECKING = 20.0
#: Seconds that closing waits for dead letters that are being written: the next owner writes them again.
DEAD_LETTERS_CLOSING = 1.0


def identity_of(record: SubscriptionRecord) -> str:
    """Returns the id of a subscription's retry topic, which an earlier topic of that name lacks; empty: no topic."""
    return "" if record.retry_topic is None else record.retry_topic.topic_id


def transactional_id(subscription: str, writer: int) -> str:
    """Returns the id under which the stream that commits with that number moves messages."""
    return f"{subscription}-{writer}"


def dead_letter_id(subscription: str, writer: int) -> str:
    """Returns the id under which the stream that commits with that number writes dead letters."""
    return f"{transactional_id(subscription, writer)}-dead"


def _dead_topic(backend: Backend, subscription: str, policy: DeadLetterPolicy) -> TopicInfo:
    try:
        return backend.admin.topic(policy.topic)
    except NotFound as error:
        make, other = (
            Call("create_topic", policy.topic),
            Call("update_subscription", subscription, (("dead_letter", ...),)),
        )
        raise FailedPrecondition(
            f"dead_letter.topic {policy.topic!r} is gone, so a message whose attempts are used up would have no place "
            f"to go: {make} makes it again, {other} names another topic",
            calls=(make, other),
        ) from error


class Answers(Protocol):
    """The receiver of the answers, called on the runner (`paired_partitions`)."""

    def move_answered(self, move_result: MoveResult) -> None:
        """Takes the result of a move request."""

    def written(self, written: Written) -> None:
        """Takes the report whether the log has taken dead letters."""

    def found(self, found: FoundBodies) -> None:
        """Takes the bodies that were read."""

    def restart(self, number: PartitionId) -> None:
        """Begins a partition's ownership anew."""


class RetryIO:
    """All requests of one stream to its retry topic, and their answers."""

    def __init__(
        self,
        backend: Backend,
        record: SubscriptionRecord,
        layout: Layout,
        writer: int,
        membership: Callable[[], Membership | None],
        rejoin: Callable[[], None] = lambda: None,
    ) -> None:
        #: The topics; a larger layout may take its place while requests of the smaller one are unanswered.
        self.layout = layout
        self._troubles = TroubleLog(log)
        self._admin = backend.admin
        self._fetch = backend.record_fetch
        self._membership = membership
        #: Is told of each answer before it has an effect; None: nothing is.
        self.on_answer: Callable[[MoveResult], None] | None = None
        #: Ends this stream's membership, and with it the requests that are still unanswered under it.
        self.rejoin = rejoin
        policy = record.options.dead_letter
        self._dead = None if policy is None else policy.topic
        #: Asked for once: the only rule for a dead letter's partition is that all dead letters of a key share one.
        self._dead_partitions = 1 if policy is None else _dead_topic(backend, record.name, policy).partitions
        name = f"kafka_pubsub-{record.name}"
        own = transactional_id(record.name, writer)
        self.mover = TransactionThread(
            lambda: backend.transactions(own), self._move_answered, f"{name}-mover"
        )
        dead = dead_letter_id(record.name, writer)
        self.dead_letters = DeadLetterWriter(
            lambda: backend.transactions(dead), self._written, self._move_answered, f"{name}-dead-letters"
        )
        self.bodies = BodyReader(backend.record_fetch, self._found, f"{name}-bodies")
        #: The last offset of each retry partition that transactions of this stream have written.
        self.written: dict[TopicPartition, int] = {}
        #: The number of move requests without a result, by partition.
        self._up: Counter[PartitionId] = Counter()
        self._changed = threading.Condition()
        self._post: Callable[[Callable[[], None]], None]
        self._answers: Answers

    def connect(self, post: Callable[[Callable[[], None]], None], answers: Answers) -> None:
        """Sets the receiver of the answers; `post` hands a call to the runner."""
        self._post, self._answers = post, answers

    # On the runner

    def write_moves(self, number: PartitionId, epoch: int, effect: StoreMoves) -> None:
        """Sends a partition's moves, or completes the transaction of dead letters that were written."""
        if effect.records and effect.records[0].dead:
            self._complete(number, epoch, effect)
            return
        records = [self._record(number, each) for each in effect.records]
        membership = self._membership()
        move_request = self._move_request(number, epoch, records, effect, membership)
        if membership is None:
            reason = FailedPrecondition("not a member of the group now")
            self._answer(MoveResult(move_request, Ending.ABORTED, reason=reason))
            return
        with self._changed:
            self._up[number] += 1
        self.mover.send(move_request)

    def _move_request(
        self,
        number: PartitionId,
        epoch: int,
        records: Sequence[NewRecord],
        effect: StoreMoves,
        membership: Membership | None,
    ) -> MoveRequest:
        """Builds a move request of these records, their checkpoint and the positions."""
        headers, layout = [*effect.said, checkpoints.header()], self.layout
        beside = layout.beside(number)
        parts = [
            NewRecord(*beside, None, checkpoints.encode(part), headers, part.checkpoint.time)
            for part in effect.parts
        ]
        positions = layout.positions(number, effect.commit)
        move_request = MoveRequest(
            number, epoch, [*records, *parts], positions, membership or Membership("", None)
        )
        if (named := effect.named) is None:
            return move_request
        return move_request._replace(
            checkpoint=len(records),
            named=lambda offset: layout.positions(number, named(offset)),
        )

    def write_dead_letters(self, number: PartitionId, epoch: int, effect: WriteDeadLetters) -> None:
        """Sends dead letters to their writer."""
        records = [self._record(number, each) for each in effect.records]
        membership = self._membership()
        move_request = MoveRequest(number, epoch, records, {}, membership or Membership("", None))
        if membership is None:
            reason = FailedPrecondition("not a member of the group now")
            self._post(lambda: self._answers.written(Written(move_request, False, reason=reason)))
        else:
            self.dead_letters.send(move_request)

    def _complete(self, number: PartitionId, epoch: int, effect: StoreMoves) -> None:
        rest = self._move_request(number, epoch, (), effect, self._membership())
        with self._changed:
            self._up[number] += 1
        if not self.dead_letters.complete(rest):
            reason = FailedPrecondition("the dead letters were given up: their commit came too late")
            self._move_answered(MoveResult(rest, Ending.ABORTED, reason=reason))

    def _record(self, number: PartitionId, each: MovedRecord) -> NewRecord:
        record = cast("StoredRecord", each.record)
        (topic, partition), key = self.layout.beside(number), record.key()
        if each.dead:
            topic = self._dead or topic
            count = self._dead_partitions
            partition = each.record.offset() % count if key is None else partition_of(key, count)
        return NewRecord(topic, partition, key, record.value(), each.headers, record.timestamp()[1])

    def read(self, number: PartitionId, epoch: int, offsets: Sequence[int]) -> None:
        """Asks for records of the retry partition to be read again."""
        self.bodies.ask(BodyRequest(self.layout.beside(number), epoch, offsets))

    def restart(self, number: PartitionId) -> None:
        """Begins a partition's ownership anew."""
        self._answers.restart(number)

    def trim(self, number: PartitionId, offset: int) -> None:
        """Deletes the retry partition's records below `offset`. This is rare, so each call starts a thread."""
        threading.Thread(
            target=self._trim, args=(number, offset), name="kafka_pubsub-trim", daemon=True
        ).start()

    def _trim(self, number: PartitionId, offset: int) -> None:
        topic, partition = self.layout.beside(number)
        try:
            self._admin.trim(topic, {partition: offset})
        except PubSubError as error:
            text = "what %s[%d] holds below %d stays for now: %s"
            self._troubles.tell(error, text, topic, partition, offset, error)

    # On the threads of their own

    def _answer(self, move_result: MoveResult) -> None:
        if self.on_answer is not None:
            self.on_answer(move_result)
        self._post(lambda: self._answers.move_answered(move_result))

    def _move_answered(self, move_result: MoveResult) -> None:
        beside = self.layout.beside(move_result.move_request.partition)
        if (last := move_result.last_in(beside)) is not None:
            self.written[beside] = last
        reason = move_result.reason
        if isinstance(reason, BrokerUnavailable | DeadlineExceeded | PermissionDenied):
            text = "subscription %r: failed messages don't get to their retry topic: %s; trying again"
            self._troubles.tell(reason, text, self.layout.record.name, reason)
        self._answer(move_result)
        with self._changed:
            self._up[move_result.move_request.partition] -= 1
            self._changed.notify_all()

    def _written(self, written: Written) -> None:
        self._post(lambda: self._answers.written(written))

    def _found(self, found: FoundBodies) -> None:
        self._post(lambda: self._answers.found(found))

    # For the fetcher, which gives partitions up and takes them on

    def wait(self, numbers: Sequence[PartitionId], timeout: float = MOVE_WAIT) -> list[PartitionId]:
        """Waits for the results of these partitions' move requests; returns the partitions that still lack one."""
        until = time.monotonic() + timeout
        with self._changed:
            while up := [number for number in numbers if self._up[number]]:
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return [number for number in up if self._up[number]]
        return []

    def fence(self, subscription: str, writer: int) -> None:
        """Ends the transactions that the writer of that number left open; if this fails, the broker ends them later."""
        dead = self.dead_letters.begin_fence(dead_letter_id(subscription, writer))
        try:
            self.mover.fence(transactional_id(subscription, writer), FENCING)
        except PubSubError as error:
            text = "subscription %r: an open transaction isn't ended yet: %s"
            self._troubles.tell(error, text, subscription, error)
        try:
            dead.result(DEAD_LETTERS_FENCING)
        except (TimeoutError, PubSubError) as error:
            log.info("subscription %r: dead letters aren't ended yet: %s", subscription, error)

    def checkpoints(
        self, wanted: Mapping[TopicPartition, tuple[Named, int]]
    ) -> Mapping[TopicPartition, Checkpoint]:
        """Reads the checkpoints that commits name in retry partitions with these ends; logs and omits lost ones."""
        if not wanted:
            return {}
        with closing(self._fetch()) as fetch:
            found = checkpoints_of(fetch, wanted)
        for place, (named, _) in wanted.items():
            if place not in found:
                log.error(
                    "the checkpoint at offset %d of %s[%d] is gone or damaged: what it called finished is delivered "
                    "again, as far as it is still there",
                    named.offset,
                    *place,
                )
        return found

    def look(
        self, stored: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]
    ) -> Findings:
        """Finds how far the logs were read, and whether they lost records that were read (`lost_tails`)."""
        layout, read, lost = self.layout, dict[TopicPartition, LogEnd](), dict[TopicPartition, int]()
        with closing(self._fetch()) as fetch:
            for index, places in layout.by_view(stored).items():
                found = look(fetch, layout.views[index], {place: stored[place] for place in places}, ends)
                read.update(found.read)
                lost.update(found.lost)
        return Findings(read, lost)

    def lost(self, place: TopicPartition, read: LogEnd) -> int | None:
        """Returns the first offset that was read and that the log has lost; None: the log has lost none."""
        with closing(self._fetch()) as fetch:
            return fetch.lost_tails({place: read}, CHECKING).get(place)

    def newest(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, tuple[Named, Checkpoint]]:
        """Finds the last checkpoint of its topics in each retry partition that has one."""
        if not ranges:
            return {}
        layout, found = self.layout, dict[TopicPartition, tuple[Named, Checkpoint]]()
        with closing(self._fetch()) as fetch:
            for index, places in layout.by_view(ranges).items():
                view = layout.views[index]
                logs = {place: ranges[place] for place in places}
                found.update(newest(fetch, logs, (view.topic_id, identity_of(view))))
        return found

    def close(self, timeout: float) -> bool:
        """Ends the threads; False if that takes longer than `timeout` seconds."""
        self.dead_letters.close(min(timeout, DEAD_LETTERS_CLOSING))
        return all([self.mover.close(timeout), self.bodies.close(timeout)])
