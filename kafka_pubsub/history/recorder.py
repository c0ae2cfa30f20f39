"""Records what one stream does in its history: deliveries, acks and nacks, ownerships, commits and moves.

It translates leases, commits and move requests to the events of a history. `Recorder` is the stream's observer: the
stream's messages are `RecordedMessage`s, and the recorder wraps the user's callback to record its beginning and end.

Rules
1. An ack or nack is recorded and takes effect in one step (under `step`), and so does a deadline that ends a lease. So
   a recorded ack counts, unless the expiry of its lease is recorded too.
2. When a lease expires, the event names the record whose callback runs, even if the core knows only an earlier one.
   A record whose callback begins at that moment is recorded as expired right after its delivery.
3. The acks and nacks in a run of messages that one callback gets have no effect before it ends, so they are recorded
   then.
4. Any thread may call; a commit's answer is recorded before it has an effect.
5. The finished runs in a commit's checkpoint (`partition/checkpoint.py`) are recorded with the commit, as if they were
   in its metadata: a history has no event for checkpoints, and a checkpoint moves no message.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, cast

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded
from kafka_pubsub.history.protocol import History, Move, Standing, number_of
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import AckFuture, CommitAnswers, Committed, Ending, Header, Message, Run, StoredRecord
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.formats.checkpoint import joined, united
from kafka_pubsub.subscribe.formats.record import FOREVER, RETRY_HEADER, RetryInfo, RetryRecord, decode
from kafka_pubsub.subscribe.partition.effects import CommitBoth, Effect, MovedRecord, StoreMoves, Withdraw
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState
from kafka_pubsub.subscribe.partition.settings import REJECTED, Found, LogStart
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import map_of
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveResult
from kafka_pubsub.subscribe.workers.lease_runner import (
    NACKED,
    PENDING,
    BatchLeaseRunner,
    HeldMessage,
    LeaseRunner,
    check_delay,
    check_extension,
)
from kafka_pubsub.subscribe.workers.observer import CommitsNoted, MessageRun, StreamObserver

__all__ = ["RecordedMessage", "Recorder"]

Place = tuple[int, int, int]

#: The number of remembered checkpoints of a partition: the named one, the next one, and those that no commit named.
_CHECKPOINTS = 8


class _Unanswered(NamedTuple):
    """A transaction without an answer: its number, and each record's origin (None: the record is no move)."""

    number: int
    moved: Sequence[int | None]


class RecordedMessage(HeldMessage):
    """A message whose acks, nacks and extensions are recorded before they take effect."""

    __slots__ = ()

    def _report(self, verb: str, tell: Callable[[Recorder], None]) -> Recorder:
        """Records a call, or that it is too late; the calls of a run's messages are recorded at the run's end."""
        lease_runner = self._sink
        evidence = _evidence_of(lease_runner)
        if self._state or lease_runner.withdrawn:
            evidence.stale(verb, self)
        elif not (isinstance(lease_runner, BatchLeaseRunner) and lease_runner.messages):
            tell(evidence)
        return evidence

    def ack(self) -> None:
        with _evidence_of(self._sink).step:
            self._report("ack", lambda evidence: evidence.acked(self))
            super().ack()

    def nack(self, delay: float | None = None) -> None:
        check_delay(delay)
        with _evidence_of(self._sink).step:
            self._report("nack", lambda evidence: evidence.nacked(self, delay))
            super().nack(delay)

    def dead_letter(self, reason: str) -> None:
        with _evidence_of(self._sink).step:
            self._report("nack", lambda evidence: evidence.nacked(self, REJECTED))
            super().dead_letter(reason)

    def _fail(self) -> None:
        with _evidence_of(self._sink).step:
            if self._state == PENDING:
                self._report("nack", lambda evidence: evidence.nacked(self, None))
                super()._fail()

    def extend(self, seconds: float) -> None:
        check_extension(seconds)
        if seconds == 0:
            self.nack()
            return
        self._report("extend", lambda evidence: evidence.extended(self, seconds))
        # This is outside of the step, because it may wait for the stream's runner.
        super().extend(seconds)

    def ack_with_response(self) -> AckFuture:
        lease_runner = self._sink
        with _evidence_of(lease_runner).step:
            late = self._state or lease_runner.withdrawn
            if isinstance(lease_runner, BatchLeaseRunner) and self in lease_runner.messages and not late:
                if not lease_runner.nacked_before(self):  # the log may know it before the run ends
                    _evidence_of(lease_runner).run_acked(lease_runner, self)
            else:
                self._report("ack", lambda evidence: evidence.acked(self))
            return super().ack_with_response()


def _evidence_of(lease_runner: LeaseRunner) -> Recorder:
    return cast("Recorder", lease_runner.reports.observer)


class Recorder(StreamObserver):
    """Records the history of one stream."""

    message = RecordedMessage

    def __init__(self, history: History, layout: Callable[[], Layout]) -> None:
        self._history = history
        self._layout = layout
        #: The lock of rule 1.
        self.step = threading.RLock()
        self._requests = count(1)
        self._batches = count(1)
        #: The epochs of the ownerships whose beginning is recorded and whose end isn't, by partition.
        self._open: dict[PartitionId, int] = {}
        #: The unanswered move requests, by partition and epoch.
        self._move_requests: dict[tuple[PartitionId, int], _Unanswered] = {}
        #: The finished runs of both logs in checkpoints, by partition and by the checkpoint's nonce, the newest last.
        self._recorded: dict[PartitionId, dict[int, tuple[Sequence[Run], Sequence[Run]]]] = {}

    def close(self) -> None:
        """Ends the history, because the stream has ended in good order."""
        self._history.close()

    # Callbacks

    def around(self, callback: Callable[[Message], object]) -> Callable[[Message], object]:
        """Wraps `callback`, so that its beginnings and ends are recorded."""

        def recorded(message: Message) -> object:
            self.begins(message)
            try:
                result = callback(message)
            except BaseException as error:
                self.ends(message, error)
                raise
            self.ends(message)
            return result

        return recorded

    def around_coroutine(
        self, callback: Callable[[Message], Awaitable[object]]
    ) -> Callable[[Message], Awaitable[object]]:
        """Does the same for a coroutine."""

        async def recorded(message: Message) -> object:
            self.begins(message)
            try:
                result = await callback(message)
            except BaseException as error:
                if not isinstance(error, Exception | asyncio.CancelledError):
                    cast("HeldMessage", message)._fail()  # the error ends the task unread
                self.ends(message, error)
                raise
            self.ends(message)
            return result

        return recorded

    def begins(self, message: Message, batch: int | None = None) -> None:
        """Records that the message is about to be handed over."""
        lease_runner = cast("LeaseRunner", message._sink)
        with self.step:
            partition, offset, epoch = _place(message)
            retry = _retry_offset(message._record)
            self._history.deliver(message, partition, offset, epoch, message._attempt, retry, batch)
            lease_runner.recorded_begun = offset
            if lease_runner.withdrawn:
                self._history.expire(partition, offset, epoch, message._attempt)

    def ends(self, message: Message, error: BaseException | None = None) -> None:
        """Records that the message's callback has ended."""
        text = None if error is None else f"{type(error).__name__}: {error}"
        self._history.handler_end(*_place(message), text)

    def run_begins(self, messages: Iterable[Message]) -> None:
        """Records that one callback is about to get these messages together."""
        batch = next(self._batches)
        for message in messages:
            self.begins(message, batch)

    def run_acked(self, lease_runner: BatchLeaseRunner, message: Message) -> None:
        """Records an ack in a run whose callback still runs; it acks the messages before it, too."""
        until = lease_runner.messages.index(message) + 1
        for each in lease_runner.messages[lease_runner.recorded : until]:
            self.acked(each)
        lease_runner.recorded = max(lease_runner.recorded, until)

    def run_ends(self, run: MessageRun, delays: Mapping[int, float | None], *, raised: bool) -> None:
        """Records that a run's callback has ended: the first `done` messages are acked, the next one may be nacked."""
        for message in run.messages[run.recorded : run.done]:
            self.acked(message)
        for message in run.messages[run.done : run.done + 1]:
            if message._state == NACKED or (raised and message._state == PENDING):
                self.nacked(message, delays.get(message.offset))
            if run.withdrawn and run.done:
                self._history.expire(*_place(message), message._attempt)
        for message in run.messages:
            self.ends(message)

    # Acks and nacks

    def acked(self, message: Message) -> None:
        """Records an ack that isn't late."""
        cast("LeaseRunner", message._sink).recorded_acked = message.offset
        self._history.ack(*_place(message), message._attempt)

    def nacked(self, message: Message, delay: float | None) -> None:
        """Records a nack that isn't late; `delay` REJECTED: the callback gave the message up."""
        rejected = delay == REJECTED
        self._history.nack(*_place(message), message._attempt, None if rejected else delay, rejected=rejected)

    def extended(self, message: Message, seconds: float) -> None:
        """Records that a deadline is moved."""
        self._history.extend(*_place(message), message._attempt, seconds)

    def stale(self, verb: str, message: Message) -> None:
        """Records an ack, a nack or an extension that is too late."""
        self._history.stale(verb, *_place(message), message._attempt)

    def durable(self, partition: PartitionId, offset: int, epoch: int, attempt: int) -> None:
        """Records that an ack is stored and its future is about to resolve."""
        self._history.durable_ack(number_of(partition), offset, epoch, attempt)

    def expiring(self, effects: Sequence[Effect]) -> None:
        """Records the leases that a deadline ends, and makes them stale."""
        with self.step:
            for effect in effects:
                for lease in effect.leases if isinstance(effect, Withdraw) else ():
                    self._expire(lease)

    def _expire(self, lease: Lease) -> None:
        lease_runner, at = lease.lease_runner, lease.done
        if (
            lease.state is LeaseState.OVER
        ):  # the callback had returned without an ack; one that comes now is late
            self._expired(lease, at)
        elif isinstance(lease_runner, LeaseRunner):
            at = max(at, lease_runner.done)
            if at < len(lease.records) and lease.records[at].offset() == _last_acked(lease_runner):
                at += 1
            together = isinstance(lease_runner, BatchLeaseRunner)
            if at < len(lease.records) and (
                together or lease.records[at].offset() == _last_begun(lease_runner)
            ):
                self._expired(lease, at)
        if isinstance(lease_runner, LeaseRunner):
            lease_runner.withdrawn = lease_runner.stopped = True

    def _expired(self, lease: Lease, at: int) -> None:
        attempt = 1 if at else lease.attempt
        self._history.expire(number_of(lease.partition), lease.records[at].offset(), lease.epoch, attempt)

    # Ownership

    def assigned(
        self, partition: PartitionId, epoch: int, stored: Committed, beside: Committed, begun: Found | None
    ) -> None:
        """Records that an ownership begins, with the stored positions; `begun` None: it continues where it was."""
        self._open[partition] = epoch
        home, retry = (LogStart(0), LogStart(0)) if begun is None else (begun.home, begun.retry)
        if begun is not None and begun.checkpoint is not None:
            self._remember(partition, begun.checkpoint.nonce, home.in_checkpoint, retry.in_checkpoint)
        main = self._standing(partition, 0, stored, home.position)
        retried = self._standing(partition, 1, beside, retry.position)
        self._history.assign(number_of(partition), epoch, main, retried, retry.end)

    def revoked(self, partitions: Iterable[PartitionId], *, lost: bool) -> None:
        """Records that the partitions are revoked or lost, unless that is recorded already."""
        for partition in partitions:
            epoch = self._open.pop(partition, None)
            if epoch is not None:
                self._history.revoke(number_of(partition), epoch, lost=lost)

    # Writes

    def committing(self, commits: Mapping[PartitionId, CommitBoth]) -> CommitsNoted:
        """Records the commits that are about to be sent; returns each one's number and epoch, for the answer."""
        number = next(self._requests)
        recorded = {partition: (number, self._open.get(partition, 0)) for partition in commits}
        for partition, commit in commits.items():
            self._commit(number, partition, recorded[partition][1], commit)
        return recorded

    def _commit(self, number: int, partition: PartitionId, epoch: int, commit: CommitBoth) -> None:
        main = self._standing(partition, 0, Committed(commit.offset, commit.metadata), 0)
        retry = self._standing(partition, 1, Committed(*commit.retry), 0)
        self._history.commit(number, number_of(partition), epoch, main, retry)

    def _standing(self, partition: PartitionId, half: int, stored: Committed, otherwise: int) -> Standing:
        """Returns what is finished in the home (0) or retry partition (1) by a commit and its checkpoint (rule 5)."""
        position = otherwise if stored.offset is None else stored.offset
        found = map_of(stored)
        if found is None:
            return Standing(position)
        known = self._recorded.get(partition, {})
        recorded = known.get(found.checkpoint.nonce) if found.checkpoint is not None and found.more else None
        return Standing(
            position, found.runs if recorded is None else united(found.runs, recorded[half], position)
        )

    def _remember(
        self, partition: PartitionId, nonce: int, main: Sequence[Run], retry: Sequence[Run]
    ) -> None:
        known = self._recorded.setdefault(partition, {})
        known[nonce] = main, retry
        while len(known) > _CHECKPOINTS:
            del known[next(iter(known))]

    def answered(self, noted: CommitsNoted, answers: CommitAnswers) -> None:
        """Records the log's answers: a commit is accepted if both positions are, and unknown if one isn't known."""
        accepted: dict[PartitionId, bool | None] = dict.fromkeys(noted, True)
        layout = self._layout()
        for place, error in answers.items():
            partition = layout.number(place)
            if isinstance(error, BrokerUnavailable | DeadlineExceeded):
                accepted[partition] = None
            elif error is not None and accepted[partition]:
                accepted[partition] = False
        for partition, (number, epoch) in noted.items():
            self._history.answer(number, number_of(partition), epoch, accepted[partition])

    def storing(self, partition: PartitionId, epoch: int, effect: StoreMoves) -> None:
        """Records the moves, dead letters and commit of a transaction that is about to begin."""
        number = next(self._requests)
        if (whole := joined(effect.parts)) is not None:
            self._remember(partition, whole.nonce, whole.main.runs, whole.retry.runs)
        readable = [each for each in effect.records if self._is_readable(each)]
        if moves := [_move(each) for each in readable if not each.dead]:
            self._history.relocate(number, number_of(partition), epoch, moves)
        for each in readable:
            if each.dead:
                attempts, error = _death(each.headers)
                offset, retry = each.record.offset(), _retry_offset(each.record)
                self._history.dead_letter(number, number_of(partition), offset, epoch, retry, attempts, error)
        self._commit(number, partition, epoch, effect.commit)
        moved = [each.record.offset() if self._is_moved(each) else None for each in effect.records]
        self._move_requests[partition, epoch] = _Unanswered(number, moved)

    def _is_readable(self, each: MovedRecord) -> bool:
        """Tells whether a record is a message; an unreadable record of the retry topic has no origin."""
        if isinstance(each.record, RetryRecord):
            return True
        return not self._layout().is_retry(cast("StoredRecord", each.record).topic())

    def _is_moved(self, each: MovedRecord) -> bool:
        return not each.dead and self._is_readable(each)

    def move_answered(self, move_result: MoveResult) -> None:
        """Records that a transaction has ended, or that its outcome is unknown."""
        partition, epoch = move_result.move_request.partition, move_result.move_request.epoch
        move_request = self._move_requests.pop((partition, epoch), None)
        if move_request is None:
            return
        accepted = {Ending.STORED: True, Ending.ABORTED: False, Ending.UNKNOWN: None}[move_result.ending]
        placed = move_result.offsets if accepted else ()
        where = [
            (origin, at) for origin, at in zip(move_request.moved, placed, strict=False) if origin is not None
        ]
        self._history.answer(move_request.number, number_of(partition), epoch, accepted, where)


def _place(message: Message) -> Place:
    lease = cast("LeaseRunner", message._sink).lease
    return number_of(lease.partition), message.offset, lease.epoch


def _last_acked(lease_runner: LeaseRunner) -> int:
    return getattr(lease_runner, "recorded_acked", -1)


def _last_begun(lease_runner: LeaseRunner) -> int:
    return getattr(lease_runner, "recorded_begun", -1)


def _retry_offset(record: Record | StoredRecord) -> int | None:
    return record.retry_offset if isinstance(record, RetryRecord) else None


def _move(each: MovedRecord) -> Move:
    info = decode(next(value for name, value in reversed(each.headers) if name == RETRY_HEADER))
    assert isinstance(info, RetryInfo)
    due = None if info.due >= FOREVER else info.due / 1000
    attempt = info.attempt + info.crashes
    why = info.why.name
    return Move(info.origin, _retry_offset(each.record), attempt, due, why.lower())


def _death(headers: Sequence[Header]) -> tuple[int, str]:
    """Returns the attempts and the error of a dead letter from its headers."""
    said = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}
    return int(said["ps-dead-attempts"]), f"{said['ps-dead-error-class']}: {said['ps-dead-error']}"
