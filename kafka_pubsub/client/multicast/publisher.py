"""Publishing to causal topics: a message is staged in the inboxes of all its topics, and a receipt says its timestamp.

Theory. One thread stages what may be staged, many messages in one Kafka transaction, so that a message is staged at all
its topics or at none. Another one reads the receipts that the sequencers write for this publisher.

Rules
1. Wrong arguments are raised by the call; everything later comes through the future.
2. After an ending that isn't known our own id is fenced, then the stage is looked for where it would lie. It is staged
   again only if it isn't there.
3. While no broker answers, messages wait, until their time has run out.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from itertools import count

from kafka_pubsub.client.admin.names import inbox_topic
from kafka_pubsub.client.multicast.arguments import Parcel, Target
from kafka_pubsub.client.multicast.outbox import Outbox, Outgoing, Sent
from kafka_pubsub.core.multicast.layout import RECEIPTS, participant, place_of, where
from kafka_pubsub.core.multicast.values import Stage
from kafka_pubsub.errors import DeadlineExceeded, FailedPrecondition, PubSubError
from kafka_pubsub.model import Ending, NewRecord, Outcome, TopicPartition
from kafka_pubsub.ports import Backend, LogTail, Transactions
from kafka_pubsub.schema.multicast import Receipt, StageRecord, decode_receipt, decode_stage, encode_stage

__all__ = ["TIMEOUT", "MulticastPublisher"]

_log = logging.getLogger("kafka_pubsub.publish")

#: Seconds after which a future fails.
TIMEOUT = 30.0
#: Messages in one transaction.
_BATCH = 500
#: Receipts read at once, and seconds that a read waits.
_RECEIPTS, _WAIT = 1000, 0.5
#: Seconds before another try after a failure.
_PAUSE = 0.1
#: Bytes and seconds for reading one record back.
_READ_BACK_BYTES, _READ_BACK_S = 64 * 1024 * 1024, 10.0


class MulticastPublisher:
    """Publishes to the causal topics of one cluster. It makes its threads with the first message."""

    def __init__(self, backend: Backend, timeout: float = TIMEOUT) -> None:
        self._backend, self._timeout = backend, timeout
        self._id = uuid.uuid4().hex[:16]
        self._numbers = count(1)
        self._outbox = Outbox()
        # Held while the outbox is used; told when something may be staged, or the end has come.
        self._changed = threading.Condition()
        self._clock = 0
        self._threads: list[threading.Thread] = []
        self._transactions: Transactions | None = None
        self._tail: LogTail | None = None
        self._receipts = 0
        self._closed = False

    def publish(
        self,
        targets: Sequence[Target],
        parcel: Parcel,
        handles: Sequence[Target] = (),
    ) -> Future[Sent]:
        """Queues a message to these topics, in the order of the calls."""
        return self._queue(targets, handles, parcel, "")

    def delete(self, target: Target, notified: Sequence[Target] = ()) -> None:
        """Deletes a topic at a place in the order; returns when all topics concerned know that place."""
        parcel = Parcel(target.name.encode(), None, ())
        self._queue([target, *notified], (), parcel, target.name).result(self._timeout + 1)

    def _queue(
        self, targets: Sequence[Target], handles: Sequence[Target], parcel: Parcel, deletes: str
    ) -> Future[Sent]:
        future: Future[Sent] = Future()
        future.set_running_or_notify_cancel()
        with self._changed:
            self._start()
            message = f"{self._id}-{next(self._numbers)}"
            destinations = [
                participant(each.name, number, each.partitions)
                for each in targets
                for number in (
                    range(each.partitions)
                    if each.name == deletes
                    else (where(parcel.key, message, each.partitions),)
                )
            ]
            carried = [participant(each.name, 0, each.partitions) for each in handles]
            stage = Stage(message, tuple(destinations), tuple(carried), deletes, self._clock)
            deadline = time.monotonic() + self._timeout
            self._outbox.add(Outgoing(stage, parcel.key, parcel.data, parcel.headers, future, deadline))
            self._changed.notify_all()
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every message has its receipt or has failed; `DeadlineExceeded` after `timeout`."""
        with self._changed:
            if not self._changed.wait_for(lambda: not len(self._outbox), timeout):
                raise DeadlineExceeded(f"{len(self._outbox)} messages to causal topics have no receipt yet")

    def close(self, timeout: float) -> None:
        """Waits up to `timeout` seconds for receipts, and ends; what is staged is delivered nevertheless."""
        if not self._threads:
            self._closed = True
            return
        with contextlib.suppress(DeadlineExceeded):
            self.flush(timeout)
        with self._changed:
            self._closed = True
            left = self._outbox.drain()
            self._changed.notify_all()
        for message in left:
            _fail(
                message, FailedPrecondition("closed before the message's receipt came; it may be delivered")
            )
        for thread in self._threads:
            thread.join()
        if self._transactions is not None:
            self._transactions.close()
        if self._tail is not None:
            self._tail.close()

    def _start(self) -> None:
        if self._closed:
            raise FailedPrecondition("this PubSub is closed: make a new one")
        if self._threads:
            return
        partitions = self._backend.admin.topic(RECEIPTS).partitions
        self._receipts = zlib.crc32(self._id.encode()) % partitions
        place = TopicPartition(RECEIPTS, self._receipts)
        self._tail = self._backend.tail(place, self._backend.admin.high_watermarks([place])[place])
        self._transactions = self._backend.transactions(f"_kafka_pubsub.multicast-{self._id}")
        for work in (self._stage_all, self._read_receipts):
            name = f"kafka_pubsub-multicast-{work.__name__.strip('_')}"
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    # -- staging, on a thread ------------------------------------------------------------------------------------

    def _stage_all(self) -> None:
        while True:
            with self._changed:
                batch = self._outbox.take(_BATCH, time.monotonic())
                while not batch and not self._closed:
                    due = self._outbox.next_deadline()
                    self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))
                    self._expire()
                    batch = self._outbox.take(_BATCH, time.monotonic())
                if self._closed:
                    return
            try:
                self._stage(batch)
            except Exception as error:
                _log.exception("staging %d messages failed", len(batch))
                self._give_up(batch, FailedPrecondition(f"staging failed: {error!r}; please report this"))

    def _stage(self, batch: Sequence[Outgoing]) -> None:
        """Stages messages, or fails them."""
        assert self._transactions is not None
        while batch and not self._closed:
            records = [record for message in batch for record in self._records(message)]
            outcome = self._transactions.transact(records, {}, None)
            if outcome.ending is Ending.UNKNOWN:
                outcome = self._find_out(records, outcome)
            if outcome.ending is Ending.STORED:
                return
            batch = self._without_refused(batch, records, outcome)
            with self._changed:
                self._expire()
                late = [each for each in batch if each.deadline <= time.monotonic()]
            why = "" if outcome.reason is None else f": {outcome.reason.message}"
            self._give_up(late, DeadlineExceeded(f"not staged within {self._timeout:g} s{why}"))
            batch = [each for each in batch if each not in late]
            if batch and not outcome.refused:
                time.sleep(_PAUSE)

    def _records(self, message: Outgoing) -> list[NewRecord]:
        header = encode_stage(StageRecord(message.stage, self._receipts))
        headers = [header, *message.headers]
        places = map(place_of, message.stage.participants)
        destinations = {place_of(each) for each in message.stage.destinations}
        return [
            NewRecord(inbox_topic(topic), number, message.key, message.data, headers)
            if (topic, number) in destinations
            else NewRecord(inbox_topic(topic), number, None, None, [header])
            for topic, number in places
        ]

    def _without_refused(
        self, batch: Sequence[Outgoing], records: Sequence[NewRecord], outcome: Outcome
    ) -> list[Outgoing]:
        at, left = 0, []
        for message in batch:
            numbers = range(at, at + len(message.stage.participants))
            at = numbers.stop
            number = next((each for each in numbers if each in outcome.refused), None)
            if number is None:
                left.append(message)
                continue
            reason = outcome.refused[number]
            topic = records[number].topic
            self._give_up([message], type(reason)(f"{topic!r} refused the message: {reason.message}"))
        return left

    def _find_out(self, records: Sequence[NewRecord], outcome: Outcome) -> Outcome:
        """Returns whether a transaction was stored, after fencing our own id."""
        assert self._transactions is not None
        fetch = self._backend.record_fetch()
        try:
            while not self._closed:
                try:
                    self._transactions.fence(self._transactions.transactional_id)
                    if not outcome.offsets:
                        return outcome._replace(ending=Ending.ABORTED)
                    first, offset = records[0], outcome.offsets[0]
                    place = TopicPartition(first.topic, first.partition)
                    found = fetch.fetch(place, [offset], _READ_BACK_BYTES, _READ_BACK_S)
                    if found.records or found.missing:
                        wanted = decode_stage(first.headers)
                        there = any(decode_stage(each.headers() or ()) == wanted for each in found.records)
                        return outcome._replace(ending=Ending.STORED if there else Ending.ABORTED)
                except PubSubError as error:
                    _log.warning("whether messages are staged isn't known yet: %s; trying again", error)
                time.sleep(_PAUSE)
            return outcome
        finally:
            fetch.close()

    def _give_up(self, messages: Sequence[Outgoing], error: PubSubError) -> None:
        """Fails messages that aren't staged."""
        with self._changed:
            for message in messages:
                self._outbox.settle(message.stage.message)
            self._changed.notify_all()
        for message in messages:
            _fail(message, error)

    def _expire(self) -> None:
        """Fails the futures whose time has run out."""
        for message, staged in self._outbox.expired(time.monotonic()):
            names = ", ".join(message.stage.destinations)
            _fail(
                message,
                DeadlineExceeded(
                    f"message {message.stage.message} to {names} has no place in the order after {self._timeout:g} s. "
                    + (
                        "It is staged and will be delivered: is a sequencer running? `kafka-pubsub service sequencer` "
                        "starts one"
                        if staged
                        else "It waits for an earlier one and won't be delivered: publish it again"
                    )
                ),
            )

    # -- receipts, on a thread -----------------------------------------------------------------------------------

    def _read_receipts(self) -> None:
        assert self._tail is not None
        while not self._closed:
            try:
                records = self._tail.read(_RECEIPTS, _WAIT)
            except PubSubError as error:
                if not self._closed:
                    _log.warning(
                        "receipts of messages to causal topics can't be read: %s; trying again", error
                    )
                    time.sleep(_PAUSE)
                continue
            found = [decode_receipt(each.headers() or ()) for each in records]
            self._settle([each for each in found if each is not None])

    def _settle(self, receipts: Sequence[Receipt]) -> None:
        done: list[tuple[Outgoing, Receipt]] = []
        with self._changed:
            for receipt in receipts:
                self._clock = max(self._clock, receipt.timestamp.clock)
                message = self._outbox.settle(receipt.message)
                if message is not None:
                    done.append((message, receipt))
            if done:
                self._changed.notify_all()
        for message, receipt in done:
            if receipt.refused:
                names = ", ".join(dict.fromkeys(place_of(each)[0] for each in receipt.refused))
                _fail(
                    message, FailedPrecondition(f"delivered to no topic, because {names} was deleted before")
                )
                continue
            with contextlib.suppress(InvalidStateError):
                message.future.set_result(Sent(receipt.message, receipt.timestamp))


def _fail(message: Outgoing, error: PubSubError) -> None:
    with contextlib.suppress(InvalidStateError):
        message.future.set_exception(error)
