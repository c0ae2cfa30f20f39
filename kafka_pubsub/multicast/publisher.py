"""Publishing to causal topics: a message is staged in the inboxes of all its topics, and a receipt says its timestamp.

Theory. One thread stages the messages that may be staged, in batches, some of them in one Kafka transaction, so that a
message is staged at all its topics or at none. A batch holds the messages that wait when the thread is free. Another
thread reads the receipts that the sequencers write for this publisher: one of each topic that a batch comes home to.

Rules
1. Wrong arguments are raised by the call; everything later comes through the future.
2. After an ending that isn't known our own id is fenced, then the stage is looked for where it would lie, in any inbox
   that is still the same. It is staged again only if an inbox was read past it and doesn't hold it. Where all of these
   were trimmed it is never staged again: the receipt or the time-out ends it.
3. While no broker answers, messages wait, until their time has run out.
4. A future fails in time, whatever the thread that stages waits for, and its error says what is known: the message is
   never delivered, or that isn't known.
5. A message holds up others until its receipt comes, or a destination's position is beyond it, or it has no inbox any
   more. So a receipt that is lost holds up nothing for long.
6. A close waits for receipts for `CLOSING` seconds, and only for stages if no sequencer runs. It says what is left.
7. Where the backend is closed first, as after a close that Ctrl-C has ended, both threads end, and so do all futures.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from kafka_pubsub.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
)
from kafka_pubsub.log.clocks import wall_time
from kafka_pubsub.log.ports import Backend, LogTail, Transactions
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import Ending, NewRecord, Outcome, TopicPartition
from kafka_pubsub.multicast.batch import BatchMessage, encode_batch
from kafka_pubsub.multicast.future import IdFuture, Sent, SentFuture, resolve
from kafka_pubsub.multicast.layout import DEAD, GROUP, RECEIPTS, message_id, place_of, publisher_id
from kafka_pubsub.multicast.outbox import Answer, Batch, Outbox, Outgoing, Standing
from kafka_pubsub.multicast.read_back import StageLooks, find_released, listed_participants
from kafka_pubsub.multicast.records import Receipt, StageRecord, decode_receipt
from kafka_pubsub.multicast.routes import Route, Target, Way, records_of_stage, way_of_deletion
from kafka_pubsub.multicast.values import MessageTimestamp
from kafka_pubsub.publish.future import CallbackThread
from kafka_pubsub.publish.service_watch import ServiceWatch

__all__ = ["CLOSING", "TIMEOUT", "MulticastPublisher", "sequencer_watch"]

_log = logging.getLogger("kafka_pubsub.publish")

Kind = TypeVar("Kind", SentFuture, IdFuture)

#: Seconds after which a future fails.
TIMEOUT = 30.0
#: Seconds that a close waits for receipts, which come within milliseconds while a sequencer runs.
CLOSING = 5.0
#: Seconds of it that each thread gets to end, in any case.
_LEAST = 1.0
#: Messages in one transaction.
_AT_ONCE = 2000
#: Receipts read at once, and seconds that a read waits.
_RECEIPTS, _WAIT = 1000, 0.5
#: Seconds before another try after a failure.
_PAUSE = 0.1
#: How a close leaves messages, in the words of its warning.
_AT_CLOSE = {
    Standing.STAGED: "delivered by the next sequencer (`kafka-pubsub service sequencer` starts one)",
    Standing.UNKNOWN: "no answer came, so perhaps delivered later",
    Standing.QUEUED: "never delivered; publish again",
}
#: The state of messages whose time has run out.
_LATE = {
    Standing.STAGED: "It is unknown whether it is delivered: it is staged and waits for a sequencer",
    Standing.UNKNOWN: "It is unknown whether it is delivered: it is perhaps staged",
    Standing.QUEUED: "It is never delivered, because it waited for an earlier one: publish it again",
}
#: The advice about an inbox that no broker finds.
_LOST = "; if another client has deleted it, delete the topic and make it again: then what waits for it is refused"
#: Seconds without a receipt of ours after which it is looked whether messages were released.
_LOOK = 5.0


def sequencer_watch() -> ServiceWatch:
    """Returns a watch for sequencers."""
    waits = (
        f"messages to causal topics are staged and not delivered, and their futures fail after {TIMEOUT:g} s"
    )
    return ServiceWatch("sequencer", "kafka-pubsub service sequencer", waits)


class MulticastPublisher:
    """Publishes to the causal topics of one cluster. It makes its threads with the first message."""

    def __init__(self, backend: Backend, watch: ServiceWatch, timeout: float = TIMEOUT) -> None:
        self._backend, self._watch, self._timeout = backend, watch, timeout
        watch.running = lambda: backend.admin.has_members(GROUP)
        # The time of deadlines, by the cluster's clock if a test moves it.
        self._time: Callable[[], float] = time.monotonic if backend.clock is None else backend.clock.now
        self._troubles = TroubleLog(_log)
        self._id = uuid.uuid4().hex[:16]
        self._numbers = count(1)
        self._outbox = Outbox(self._id)
        # Held while the outbox is used; told when something may be staged, or the end has come.
        self._changed = threading.Condition()
        # Held while futures get their outcomes.
        self._futures = threading.Lock()
        #: Runs the done-callbacks of its futures.
        self.callbacks = CallbackThread("kafka_pubsub-multicast-callbacks")
        # Whether the thread that stages waits for something to do.
        self._idle = False
        self._clock = 0
        self._threads: list[threading.Thread] = []
        self._transactions: Transactions | None = None
        self._tail: LogTail | None = None
        self._receipts = 0
        self._closed = False

    def start(self) -> None:
        """Makes the threads, unless they run; `NotFound` if no broker finds the topic of receipts."""
        with self._changed:
            self._start()

    @property
    def started(self) -> bool:
        """Whether it has threads."""
        return bool(self._threads)

    def publish(self, route: Route, message: BatchMessage, kind: type[Kind]) -> Kind:
        """Queues a message to the topics of the route, in the order of the calls."""
        with self._changed:
            # Where a topic has several partitions, a message without a key goes to that of its name.
            name = f"{self._id}-{next(self._numbers)}"
            return self._queue(route.way(message.key, name), message, kind)

    def delete(self, target: Target, notified: Sequence[Target] = ()) -> None:
        """Deletes a topic at a place in the order; returns when all topics concerned know that place."""
        now = wall_time(self._backend.clock)
        message = BatchMessage(int(now * 1000), None, target.name.encode(), ())
        with self._changed:
            future = self._queue(way_of_deletion(target, notified), message, SentFuture)
        future.result(self._timeout + 1)

    def _queue(self, way: Way, message: BatchMessage, kind: type[Kind]) -> Kind:
        self._start()
        self._watch.used()
        future = kind(self)
        self._outbox.add(Outgoing(way, message, future, self._time() + self._timeout))
        if self._idle:
            self._changed.notify_all()
        return future

    def flush(self, topic: str, timeout: float | None = None) -> None:
        """Waits until the messages to a topic have outcomes; `DeadlineExceeded` after `timeout`."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            left = [message.future for message, _ in self._outbox.waiting(topic)]
        # The last one first: when it has its place, nearly all have.
        for future in reversed(left):
            try:
                future.exception(None if until is None else max(0.0, until - time.monotonic()))
            except TimeoutError:
                count = sum(not each.done() for each in left)
                raise DeadlineExceeded(
                    f"flush: after {timeout:g} s, {count} of the messages to causal topic {topic!r} have no place in "
                    f"the order: {self._watch.advice}"
                ) from None

    def waits(self, future: object, seconds: float | None) -> str:
        """Returns a text that says why the message of a future isn't delivered after so many seconds."""
        with self._changed:
            found = [each for each in self._outbox.waiting() if each[0].future is future]
        if not found:
            return f"no outcome after {seconds or 0:g} s; ask again"
        message, standing = found[0]
        return (
            f"the message to {', '.join(message.topics)} has no place in the order after {seconds or 0:g} s. It is "
            f"{standing.value}; {self._watch.advice}"
        )

    def close(self, timeout: float = CLOSING) -> None:
        """Waits up to `timeout` seconds for receipts, and ends; what is staged is delivered nevertheless."""
        if self._backend.clock is not None:
            self._backend.clock.leave(self)
        with self._changed:
            waits = len(self._outbox) > 0
        self._watch.end_looks(look=waits)
        until = time.monotonic() + timeout
        with self._changed:
            if self._threads:
                self._changed.wait_for(self._may_end, timeout)
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(_LEAST, until - time.monotonic()))
        self._end_threads()
        self.callbacks.end()
        if any(thread.is_alive() for thread in self._threads):
            return  # a call to a broker that doesn't answer: its thread is left behind, with what it uses
        if self._transactions is not None:
            self._transactions.close()
        if self._tail is not None:
            self._tail.close()

    def _end_threads(self) -> None:
        """Has the threads end, and gives up what has no outcome."""
        with self._changed:
            self._closed = True
            left = self._outbox.waiting()
            self._outbox.drain()
            self._changed.notify_all()
        self._give_up_at_close(left)

    def _may_end(self) -> bool:
        """Whether nothing is left that a close should wait for (rule 4)."""
        return not len(self._outbox) or (self._idle and self._watch.missing)

    def _give_up_at_close(self, left: Sequence[tuple[Outgoing, Standing]]) -> None:
        """Fails the messages that a close leaves without an outcome, and logs which these are."""
        for standing, then in _AT_CLOSE.items():
            some = [message for message, each in left if each is standing]
            if some:
                names = ", ".join(sorted({name for message in some for name in message.topics}))
                messages = "1 message" if len(some) == 1 else f"{len(some)} messages"
                _log.warning("closed with %s to %s %s: %s", messages, names, standing.value, then)
            for message in some:
                self._fail(message, FailedPrecondition(f"closed with the message {standing.value}: {then}"))

    def _start(self) -> None:
        if self._closed:
            raise FailedPrecondition("this PubSub is closed: make a new one")
        if self._threads:
            return
        partitions = self._backend.admin.topic(RECEIPTS).partitions
        self._receipts = zlib.crc32(self._id.encode()) % partitions
        place = TopicPartition(RECEIPTS, self._receipts)
        self._tail = self._backend.tail(place, self._backend.admin.high_watermarks([place])[place])
        self._transactions = self._backend.transactions(publisher_id(self._id))
        if self._backend.clock is not None:
            self._backend.clock.enter(self)
        for work in (self._stage_all, self._read_receipts):
            name = f"kafka_pubsub-multicast-{work.__name__.strip('_')}"
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    # -- as a sleeper of a movable clock -------------------------------------------------------------------------

    def due_at(self) -> float | None:
        """Returns when the next message's time may run out."""
        return self._outbox.next_deadline()

    def under_way(self, *, callbacks: bool) -> str:
        """Returns that messages wait for a sequencer that runs, if they do."""
        with self._changed:
            waits = len(self._outbox) > 0
        waits = waits and self._backend.admin.group_members(GROUP) > 0
        return "messages to causal topics wait for their places in the order" if waits else ""

    def wake(self) -> None:
        """Has the thread that stages look which messages' time has run out."""
        with self._changed:
            self._changed.notify_all()

    # -- staging, on a thread ------------------------------------------------------------------------------------

    def _stage_all(self) -> None:
        while batches := self._next():
            try:
                self._stage(batches)
            except Exception as error:
                _log.exception("staging %d batches failed", len(batches))
                self._give_up(batches, FailedPrecondition(f"staging failed: {error!r}; please report this"))

    def _next(self) -> Sequence[Batch]:
        """Waits for messages that may be staged; fails those that have waited too long. Empty: the end has come."""
        while True:
            with self._changed:
                now = self._time()
                expired = self._outbox.expired(now)
                batches = self._outbox.take(_AT_ONCE, now, self._clock)
                if self._closed:
                    return ()
                if not expired and not batches:
                    due = self._outbox.next_deadline()
                    self._idle = True
                    self._changed.notify_all()  # a close may wait for this
                    self._changed.wait(None if due is None else max(0.0, due - now))
                    self._idle = False
            self._say_expired(expired)
            if batches:
                return batches

    def _stage(self, batches: Sequence[Batch]) -> None:
        """Stages batches, or fails them."""
        assert self._transactions is not None
        while batches and not self._closed:
            records = [record for batch in batches for record in self._records(batch)]
            outcome = self._transactions.transact(records, {}, None)
            if outcome.ending is Ending.UNKNOWN:
                outcome = self._find_out(batches, records, outcome)
            if outcome.ending is not Ending.ABORTED:
                self._note(batches, outcome)
                return
            batches = self._without_refused(batches, records, outcome)
            if batches:
                batches = self._wait_again(batches, outcome)

    def _note(self, batches: Sequence[Batch], outcome: Outcome) -> None:
        """Notes where batches lie that are staged, or of which that can't be known."""
        offsets = iter(outcome.offsets)
        with self._changed:
            for batch in batches:
                batch.offsets = dict(zip(batch.way.participants, offsets, strict=False))
                batch.stored = outcome.ending is Ending.STORED
                if not batch.stored:
                    self._outbox.doubt(batch)

    def _records(self, batch: Batch) -> list[NewRecord]:
        value = encode_batch([each.message for each in batch.messages])
        return records_of_stage(StageRecord(batch.stage, self._receipts), value)

    def _without_refused(
        self, batches: Sequence[Batch], records: Sequence[NewRecord], outcome: Outcome
    ) -> list[Batch]:
        at, left, listed = 0, [], None
        with contextlib.suppress(PubSubError):  # else it is asked after the next try
            listed = listed_participants(self._backend) if outcome.refused else None
        for batch in batches:
            numbers = range(at, at + len(batch.way.participants))
            at = numbers.stop
            reasons = [outcome.refused[each] for each in numbers if each in outcome.refused]
            gone = [each for each in batch.way.participants if listed is not None and each not in listed]
            if gone:
                names = ", ".join(dict.fromkeys(place_of(each).topic for each in gone))
                error: PubSubError = FailedPrecondition(
                    f"never delivered: {names} was deleted, or made again"
                )
            elif reasons and isinstance(reasons[0], InvalidArgument):
                names = records[next(each for each in numbers if each in outcome.refused)].topic
                error = InvalidArgument(f"{names!r} refused the message: {reasons[0].message}")
            else:
                left.append(batch)
                continue
            self._give_up([batch], error)
        return left

    def _wait_again(self, batches: Sequence[Batch], outcome: Outcome) -> list[Batch]:
        """Waits a moment before batches are staged again; returns those whose time hasn't run out.

        Until then it is known that they aren't staged; messages that have waited too long never are.
        """
        why = "" if outcome.reason is None else f": {outcome.reason.message}"
        why += _LOST if isinstance(outcome.reason, NotFound) else ""
        if isinstance(outcome.reason, PermissionDenied):
            self._troubles.tell(outcome.reason, "messages to causal topics wait: %s", outcome.reason)
        with self._changed:
            for batch in batches:
                batch.trouble = f"it couldn't be staged{why}"
        time.sleep(_PAUSE)
        with self._changed:
            now = self._time()
            expired = self._outbox.expired(now)
            for batch in batches:
                self._outbox.give_up(batch, now)
                batch.trouble = "" if batch.messages else batch.trouble
            self._changed.notify_all()
        self._say_expired(expired)
        return [each for each in batches if each.messages]

    def _find_out(self, batches: Sequence[Batch], records: Sequence[NewRecord], outcome: Outcome) -> Outcome:
        """Returns whether a transaction was stored, after fencing our own id; unknown: that can't be found out."""
        assert self._transactions is not None
        names = [name for batch in batches for name in batch.way.participants]
        looks = StageLooks(self._backend, self._troubles)
        try:
            while not self._closed:
                try:
                    self._transactions.fence(self._transactions.transactional_id)
                    ending = looks.find(names, records, outcome.offsets)
                    if ending is not None:
                        return outcome._replace(ending=ending)
                except PubSubError as error:
                    text = "whether messages are staged isn't known yet: %s; trying again"
                    self._troubles.tell(error, text, error)
                time.sleep(_PAUSE)
            return outcome
        finally:
            looks.close()

    def _give_up(self, batches: Sequence[Batch], error: PubSubError) -> None:
        """Fails batches that aren't staged."""
        with self._changed:
            for batch in batches:
                self._outbox.settle(batch.stage.message)
            self._changed.notify_all()
        for batch in batches:
            for message in batch.messages:
                self._fail(message, error)

    def _say_expired(self, expired: Sequence[tuple[Outgoing, Standing]]) -> None:
        """Fails the futures of messages whose time has run out."""
        for message, standing in expired:
            names = ", ".join(message.topics)
            why = _LATE[standing]
            if standing is not Standing.QUEUED:
                why += f": {self._watch.advice}"
            elif message.batch is not None:
                trouble = message.batch.trouble or "it waited too long"
                why = f"It is never delivered, because {trouble}"
            text = f"a message to {names} has no place in the order after {self._timeout:g} s. {why}"
            self._fail(message, DeadlineExceeded(text))

    # -- receipts, on a thread -----------------------------------------------------------------------------------

    def _read_receipts(self) -> None:
        assert self._tail is not None
        look_at = time.monotonic() + _LOOK
        while not self._closed:
            with self._changed:
                expired = self._outbox.expired(self._time())
            self._say_expired(expired)
            if time.monotonic() >= look_at:
                self._end_holds()
                look_at = time.monotonic() + _LOOK
            try:
                records = self._tail.read(_RECEIPTS, _WAIT)
            except PubSubError as error:
                if self._tail.closed:
                    self._end_threads()
                    return
                if not self._closed:
                    text = "receipts of messages to causal topics can't be read: %s; trying again"
                    self._troubles.tell(error, text, error)
                    time.sleep(_PAUSE)
                continue
            found = [decode_receipt(each.headers() or ()) for each in records]
            if self._settle([each for each in found if each is not None]):
                look_at = time.monotonic() + _LOOK

    def _end_holds(self) -> None:
        """Lets messages go that wait for released ones, though their receipts haven't come."""
        with self._changed:
            batches = self._outbox.held_up()
        if not batches:
            return
        try:
            over = find_released(self._backend, batches)
        except PubSubError as error:
            self._troubles.tell(error, "whether messages were released isn't known yet: %s", error)
            return
        with self._changed:
            for batch in over:
                self._outbox.sent(batch, self._time())
            self._changed.notify_all()

    def _settle(self, receipts: Sequence[Receipt]) -> bool:
        """Resolves the futures of batches of ours; returns whether there were any."""
        answers: list[Answer] = []
        with self._changed:
            for receipt in receipts:
                if receipt.timestamp is not None:
                    self._clock = max(self._clock, receipt.timestamp.clock)
                answer = self._outbox.take_receipt(receipt, self._time())
                if answer is not None:
                    answers.append(answer)
            if answers:
                self._changed.notify_all()
        for answer in answers:
            self._resolve(answer)
        return bool(answers)

    def _resolve(self, answer: Answer) -> None:
        """Gives the futures of messages their outcomes."""
        receipt, taken, refused, _ = answer
        if taken and receipt.timestamp is not None:
            name, (clock, topic) = receipt.message, receipt.timestamp
            results = [
                Sent(message_id(name, number), MessageTimestamp(clock, topic, number)) for number, _ in taken
            ]
            resolve([each.future for _, each in taken], results, self._futures)
        for message in refused:
            self._fail(message, _explain(answer))

    def _fail(self, message: Outgoing, error: PubSubError) -> None:
        resolve([message.future], [error], self._futures)


def _explain(answer: Answer) -> FailedPrecondition:
    """Returns the error of messages that all their destinations refused."""
    if answer.receipt.refused:
        names = ", ".join(dict.fromkeys(place_of(each).topic for each in answer.receipt.refused))
        return FailedPrecondition(f"delivered to no topic, because {names} was deleted before")
    reasons = {place_of(name).topic: why for name, why in sorted(answer.reasons.items())}
    names = ", ".join(map(repr, reasons))
    told = "; ".join(f"{topic!r}: {why}" for topic, why in reasons.items())
    return FailedPrecondition(f"{names} refused the message, so it is a dead letter in {DEAD}: {told}")
