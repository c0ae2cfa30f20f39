"""A lease runner: calls the callback for one lease's records in order, and carries out acks, nacks and extensions.

Theory. The hot path is here: a worker runs a lease and calls the callback for one record after the other, as long as
each is acked when its callback returns. One report at the end says how far it came; nothing per message crosses a
thread.

A message's `_state` is PENDING until it is acked or nacked, then one of the codes below; it never changes twice.

Rules
1. `done` counts the acked records, so it is also the number of the one that is with its callback. Only the running
   thread writes it; the runner reads it (it only grows, so an old value is merely late).
2. An ack on another thread and the end of the callback may cross. Each first writes its own flag and then reads
   the other's: at least one of them sees both, so an ack can be reported twice but never lost.
3. `withdrawn` (the lease is over) makes later acks and nacks stale; `stopped` (begin nothing more) doesn't.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Protocol, cast

from kafka_pubsub.errors import BadRecord, InvalidArgument, RegistryUnavailable
from kafka_pubsub.log.clocks import Durations
from kafka_pubsub.model import NO_RECORDS, AckFuture, AckId, Message, RecordReader, StoredRecord
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement
from kafka_pubsub.subscribe.partition.settings import LONGEST_DELAY, REJECTED
from kafka_pubsub.subscribe.workers.ack_futures import refused
from kafka_pubsub.subscribe.workers.failure_log import log_given_up, log_raised, rejection, words_of
from kafka_pubsub.subscribe.workers.observer import UNOBSERVED, StreamObserver

__all__ = [
    "ACKED",
    "AWAY",
    "KEPT",
    "NACKED",
    "PENDING",
    "STALE",
    "LeaseRunner",
    "Reports",
    "check_delay",
    "check_extension",
]

PENDING, ACKED, NACKED, STALE = 0, 1, 2, 3
KEPT = LeaseOutcome.KEPT
#: Seconds until a message comes again whose schema couldn't be asked for: an outage mustn't use its attempts up.
AWAY = 30.0


class Reports(Protocol):
    """The stream's runner, to which lease runners report. Any thread may call."""

    process: int
    observer: StreamObserver = UNOBSERVED
    #: How long callbacks take.
    callbacks: Durations = Durations()
    records: RecordReader = NO_RECORDS

    def released(self, *releases: LeaseReport) -> None: ...
    def settled(self, settlement: Settlement) -> None: ...
    def extended(self, lease: Lease, done: int, seconds: float) -> None: ...
    def awaited(self, lease: Lease, message: Message) -> AckFuture: ...
    def stale(self) -> None: ...
    def take_over(self) -> None: ...
    def handed_out(self, ack_id: str, message: Message) -> None: ...
    def lane(self, number: PartitionId) -> tuple[int, bool]: ...


def check_delay(delay: float | None) -> None:
    """Raises `InvalidArgument` for a delay that no nack can have."""
    if delay is not None and not 0 <= delay <= LONGEST_DELAY:
        raise InvalidArgument(f"nack(delay={delay}): the delay must be from 0 to {LONGEST_DELAY} seconds")


def check_extension(seconds: float) -> None:
    """Raises `InvalidArgument` for seconds that no deadline can have."""
    if not 0 <= seconds <= 600:
        raise InvalidArgument(f"extend({seconds}): the new deadline must be from 0 to 600 seconds from now")


class HeldMessage(Message):
    """A message with the shortest path for its ack, the only method of the hot path."""

    __slots__ = ()

    _sink: LeaseRunner

    def ack(self) -> None:
        """Marks the message as finished: it is never delivered again."""
        lease_runner = self._sink
        if self._state or lease_runner.withdrawn:
            lease_runner.reports.stale()
            return
        self._state = ACKED
        lease_runner = self._sink  # another lease runner, if the message was left just now (`inline_runner`)
        if lease_runner.detached:
            lease_runner.acked_later(self)

    def _fail(self) -> None:
        """Nacks the message, because its callback raised or its task was cancelled."""
        self._state = NACKED


class LeaseRunner:
    """Runs one lease for a worker, and afterwards takes the user's acks and nacks for it."""

    __slots__ = (
        "_delay",
        "_error",
        "begun",
        "detached",
        "done",
        "lease",
        "recorded_acked",
        "recorded_begun",
        "reports",
        "seen",
        "seen_at",
        "stopped",
        "withdrawn",
    )

    #: Offsets of the last ack and the last delivery that a history has recorded; never set without a history.
    recorded_acked: int
    recorded_begun: int

    def __init__(self, lease: Lease, reports: Reports) -> None:
        self.lease = lease
        self.reports = reports
        #: Records acked; the next one is with its callback.
        self.done = 0
        #: Whether a callback has begun.
        self.begun = False
        self.stopped = False
        self.withdrawn = False
        #: True once the callback has returned without ack or nack: later ones go to the runner themselves.
        self.detached = False
        #: For the runner: the lease runner's progress at its last check, and since when (monotonic seconds).
        self.seen = -1
        self.seen_at = 0.0
        self._delay: float | None = None
        #: The error that the callback raised, or was handling when it nacked; empty: none.
        self._error = ""

    def run(self, callback: Callable[[Message], object], most: int = sys.maxsize) -> LeaseReport:
        """Takes the records one by one until one isn't acked, or all are, or `most` of them."""
        lease = self.lease
        whole = len(lease.records) <= most
        new, kind = object.__new__, self._kind()  # four stores here cost half of a call of `__init__`
        self.begun = True
        attempt = lease.attempt
        done = 0
        for record in lease.records if whole else lease.records[:most]:
            if self.stopped:
                self.let_go()
                return LeaseReport(lease, done, LeaseOutcome.UNTOUCHED)
            message = new(kind)
            message._record = record  # type: ignore[assignment]
            message._sink = self
            message._attempt = attempt
            message._state = PENDING
            try:
                callback(message)
            except BaseException as error:  # this thread must go on with the key after any exception
                self.raised(message, error)
            if message._state != ACKED:
                return self.left(message)
            attempt = 1  # the later records have never been delivered
            done += 1
            self.done = done
        self.let_go()
        return LeaseReport(lease, done, LeaseOutcome.FINISHED if whole else LeaseOutcome.UNTOUCHED)

    def let_go(self) -> None:
        """Drops references, so that records are freed at once and not by the collector."""
        self.lease.lease_runner = None

    def begin(self) -> Message | None:
        """Returns the message of the next record, now with its callback; None if nothing more may begin."""
        if self.stopped:
            return None
        self.begun = True
        return self._message_of(self.done)

    def _message_of(self, at: int) -> Message:
        attempt = 1 if at else self.lease.attempt
        return self._kind()(cast("StoredRecord", self.lease.records[at]), self, attempt)

    def _kind(self) -> type[Message]:
        """Returns the class of its messages."""
        return self.reports.observer.message or HeldMessage

    def raised(self, message: Message, error: BaseException) -> None:
        """Notes that the callback raised: a nack, unless it had acked before; an unreadable record is given up."""
        if (
            isinstance(error, BadRecord)
            and message._state == PENDING
            and error.message_id == message.message_id
        ):
            log_given_up(message, error)
            message.dead_letter(error.message)
            return
        log_raised([message], error)
        if message._state != PENDING:
            return
        if isinstance(error, RegistryUnavailable):
            message.nack(AWAY)
        else:
            cast("HeldMessage", message)._fail()
            self._error = words_of(error)

    def left(self, message: Message) -> LeaseReport:
        """Returns the report after the callback has returned without an ack of `message`."""
        self.detached = True
        if message._state == ACKED:  # it was acked on another thread just now (rule 2)
            self.let_go()
            return LeaseReport(self.lease, self.done + 1, LeaseOutcome.UNTOUCHED)
        if message._state == NACKED or self.withdrawn:
            self.let_go()
            return LeaseReport(self.lease, self.done, LeaseOutcome.NACKED, self._delay, self._error)
        return LeaseReport(self.lease, self.done, LeaseOutcome.KEPT)

    # The methods behind a message (MessageSink)

    def _late(self, message: Message) -> bool:
        if message._state == PENDING and not self.withdrawn:
            return False
        self.reports.stale()
        return True

    def ack(self, message: Message) -> None:
        message.ack()

    def acked_later(self, message: Message) -> None:
        """Takes an ack or a nack after the callback has returned."""
        self.reports.settled(Settlement(self.lease, self.done, acked=True))
        self.let_go()

    def nack(self, message: Message, delay: float | None) -> None:
        check_delay(delay)
        self._nack(message, delay, words_of(sys.exc_info()[1]))

    def dead_letter(self, message: Message, reason: str) -> None:
        self._nack(message, REJECTED, rejection(reason, sys.exc_info()[1]))

    def _nack(self, message: Message, delay: float | None, error: str) -> None:
        if self._late(message):
            return
        self._delay, self._error = delay, error
        message._state = NACKED
        lease_runner = cast(
            "LeaseRunner", message._sink
        )  # another lease runner, if the message was left just now (`inline_runner`)
        if lease_runner.detached:
            lease_runner.nacked_later(delay, self._error)

    def nacked_later(self, delay: float | None, error: str) -> None:
        """Takes an ack or a nack after the callback has returned."""
        self.reports.settled(Settlement(self.lease, self.done, acked=False, delay=delay, error=error))
        self.let_go()

    def extend(self, message: Message, seconds: float) -> None:
        check_extension(seconds)
        if seconds == 0:
            self.nack(message, None)
        elif not self._late(message):
            self.reports.extended(self.lease, self.done, seconds)

    def ack_with_response(self, message: Message) -> AckFuture:
        if self._late(message):
            return refused(message)
        # Recorded before the message counts as acked: a thread that sees the ack may report it at once (`inbox`).
        future = self.reports.awaited(self.lease, message)
        message._state = ACKED
        if self.detached:
            self.let_go()
        return future

    def ack_id(self, message: Message) -> str:
        lease = self.lease
        ack_id = str(
            AckId(
                self.reports.process, *lease.partition, message.offset, lease.epoch, message.delivery_attempt
            )
        )
        self.reports.handed_out(ack_id, message)
        return ack_id

    def lane(self) -> tuple[int, bool]:
        return self.reports.lane(self.lease.partition)

    def records(self) -> RecordReader:
        return self.reports.records


class BatchLeaseRunner(LeaseRunner):
    """Runs a lease whose messages one callback gets together.

    Acks inside a run count cumulatively; a nack redelivers from there on. When the callback has returned, only the
    first unfinished message is open: an ack or nack of another one must not be taken for its own.
    """

    def __init__(self, lease: Lease, reports: Reports) -> None:
        super().__init__(lease, reports)
        self.messages: list[Message] = []
        self._delays: dict[int, float | None] = {}
        self._errors: dict[int, str] = {}
        #: Messages from the front whose acks a history recorded while the callback ran.
        self.recorded = 0

    def _nack(self, message: Message, delay: float | None, error: str) -> None:
        super()._nack(message, delay, error)
        self._delays.setdefault(message.offset, delay)
        self._errors.setdefault(message.offset, self._error)

    def ack_with_response(self, message: Message) -> AckFuture:
        if self.nacked_before(message):  # the run is delivered again from there on
            self.reports.stale()
            return refused(message)
        future = super().ack_with_response(message)
        for each in self._before(message):
            if each._state == PENDING:  # the log may have it from now on: too late for a nack
                each._state = ACKED
        return future

    def nacked_before(self, message: Message) -> bool:
        """Returns whether an earlier message of the run was nacked."""
        return any(each._state == NACKED for each in self._before(message))

    def _before(self, message: Message) -> Iterator[Message]:
        return takewhile(lambda each: each is not message, self.messages)

    def begin_run(self) -> list[Message]:
        """Returns all messages of the run; an empty list if nothing more may begin."""
        if not self.stopped:
            self.begun = True
            self.messages = [self._message_of(at) for at in range(len(self.lease.records))]
            self.reports.observer.run_begins(self.messages)
        return self.messages

    def end_run(self, raised: BaseException | None = None) -> LeaseReport:
        """Returns the report of the run, after its callback."""
        with self.reports.observer.step:
            return self._end_run(raised)

    def _end_run(self, raised: BaseException | None) -> LeaseReport:
        if not self.messages:
            return LeaseReport(self.lease, 0, LeaseOutcome.UNTOUCHED)
        states = [message._state for message in self.messages]
        acked = max((at + 1 for at, state in enumerate(states) if state == ACKED), default=0)
        nacked = next((at for at, state in enumerate(states) if state == NACKED), None)
        self.done = done = acked if nacked is None else min(acked, nacked)
        if isinstance(raised, RegistryUnavailable):
            for message in self.messages:
                self._delays.setdefault(message.offset, AWAY)
        self.reports.observer.run_ends(self, self._delays, raised=raised is not None)
        if done == len(states):
            self.let_go()
            self.messages = []
            return LeaseReport(self.lease, done, LeaseOutcome.FINISHED)
        current = self.messages[done]
        self._delay = self._delays.get(current.offset)
        self._error = self._errors.get(current.offset) or words_of(raised)
        for message in self.messages:
            if message is not current:
                message._state = STALE
        self.messages = []
        if raised is not None and current._state == PENDING:
            current._state = NACKED
        return self.left(current)
