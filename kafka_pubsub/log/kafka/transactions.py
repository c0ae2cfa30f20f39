"""Transactions over librdkafka's producer: records and a group's offsets, together or not at all.

Theory: afterwards a caller has to know whether anything is stored. So every failure counts as before or after
the request to commit. Before it, nothing is stored, nor ever will be, because only this
writer could have committed. After it, without an answer, the outcome is unknown.

Rules
1. The commit is requested only when every record was acknowledged and every offset accepted. (librdkafka would
   commit the records alone after `send_offsets_to_transaction` ran out of time.)
2. A producer whose transaction didn't end cleanly is discarded; the next one takes the same id, which ends an open
   transaction and fences unanswered requests.
3. A waiting `poll` stays below 0.2 s: above, the Python client calls on after a fatal error with the exception
   still set, and reports are lost.
4. Every wait ends: a frozen broker costs `_DEADLINE` and the end of the unanswered request. librdkafka doesn't
   ensure that: when the group's coordinator leaves at the wrong moment, `send_offsets_to_transaction` never returns
   (confluentinc/librdkafka#5456, #5511; seen in rolling restarts). So its calls are made on a thread that can be
   abandoned together with its producer, which is never used again.
5. The wait for positions that come later (`PositionsLater`) begins when every record was acknowledged, so a partition
   that takes no records never holds up a position. An abort isn't over before the broker could write its end to each
   partition that the transaction touched, whatever `abort_transaction` says; until then the id can't write.
6. A membership without a generation is never sent: the broker takes it for a commit from outside the group and
   doesn't fence it.
7. A report for each record costs more than half of what queueing it does, so without `locate` none is asked for.
   librdkafka refuses to commit if a record failed; that counts as an unknown outcome. After a failure the next
   `_CAREFUL` transactions ask for reports, so the one with the same record knows which it was.
8. Positions that are known go before the records. While the broker still ends the transaction before, librdkafka asks
   again at once whether positions may go, and only after 20 ms whether records may (tried).
9. librdkafka learns of added partitions after minutes. A record for one that it doesn't know isn't refused, if a
   broker has it: the transaction is aborted, and the next producer knows.
10. A topic's limit counts a whole batch, and all records of a larger one are refused. That blames none of them, unless
   batches kept to the limit before: then the record was alone in its batch. The next producer's batches do so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, PubSubError
from kafka_pubsub.log.kafka.bounded_calls import Bounded, ask, explain
from kafka_pubsub.log.kafka.client_factory import ClientFactory, Trouble
from kafka_pubsub.log.kafka.commit_requests import fenced_requests
from kafka_pubsub.log.kafka.configuration import ConfigValue
from kafka_pubsub.log.kafka.errors import error_of
from kafka_pubsub.log.kafka.group_membership import in_force
from kafka_pubsub.log.kafka.rights import Doing, Right, id_of, of_group, on_topics
from kafka_pubsub.log.kafka.transaction_errors import DROPPED, cause_of, silence
from kafka_pubsub.log.ports import Admin, Transactions
from kafka_pubsub.model import (
    Ending,
    Further,
    Membership,
    NewRecord,
    Outcome,
    Positions,
    PositionsLater,
)

__all__ = ["KafkaTransactions"]

_log = logging.getLogger("kafka_pubsub.transactions")

_DEFAULTS: Mapping[str, ConfigValue] = {
    # Milliseconds. The wait for offsets that a frozen coordinator doesn't answer; librdkafka takes no shorter limit
    # for that call.
    "socket.timeout.ms": 5_000,
    # Milliseconds that a topic may be unknown before a record for it fails: a deleted topic should fail soon.
    "topic.metadata.propagation.max.ms": 3_000,
}

_RULES: Mapping[str, ConfigValue] = {
    "client.id": "kafka_pubsub-transactions",
    "enable.idempotence": True,
    "acks": "all",
    # Milliseconds after which the broker ends a killed process's transaction (it checks every 10 s), if no producer
    # fences it before. A live one needs some 10 ms; a broker that restarts is back in about 5 s.
    "transaction.timeout.ms": 10_000,
    # Milliseconds. The records of a transaction are queued in one go; the first shouldn't be sent alone.
    "linger.ms": 1,
    # A move must not fail for its size: a topic's limit counts compressed bytes, and a producer that wrote
    # 5 MB of zstd into a topic of 1 MB shows how large a move may be.
    "compression.type": "zstd",
    "message.max.bytes": 1_000_000_000,
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_147_483_647,
}

#: Bytes of a batch before compression; a larger record goes alone. It fits the usual limit of a topic (rule 10).
_BATCH = 1_000_000
#: Transactions with records: a service may store others before it tries the refused record again (rule 7).
_CAREFUL = 100

#: Seconds for a transaction up to the request to commit, and again for its answer.
_DEADLINE = 8.0
#: Seconds for an abort; a transaction that it can't end is ended by the next producer's start.
_ABORT_S = 5.0

#: Seconds for a producer's start: 0.1 are normal, a broker that restarts is back in 5.
_START_S = 10.0

#: Seconds for which closing waits for a transaction: it takes milliseconds, unless the broker doesn't answer.
_CLOSE_S = 5.0
_THREAD = "kafka_pubsub-transaction"
#: Seconds for a question to a broker which partitions a topic has.
_METADATA_S = 2.0

#: Seconds beyond its own limit after which a call counts as stuck (rule 4); the offsets' own is 5 or what is left.
_STUCK_S = 1.0
_OFFSETS_S = 5.0
#: Seconds; see rule 3.
_SLICE = 0.1

#: The errors of a record that no transaction can take now: others needn't wait for it.
_OF_THE_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class KafkaTransactions(Transactions):
    """A `Transactions` over librdkafka."""

    def __init__(self, handles: ClientFactory, admin: Admin, transactional_id: str) -> None:
        if not transactional_id:
            raise InvalidArgument("transactional_id: must not be empty")
        self._handles = handles
        self._admin = admin
        self._id = transactional_id
        self._trouble = Trouble()
        # One transaction or fence of this id at a time.
        self._lock = threading.Lock()
        self._closed = False
        # How many transactions with records still ask for reports (rule 7).
        self._careful = 0
        # Bytes of a batch of the next producer (rule 10).
        self._batch = _BATCH
        # None: not made yet, or discarded.
        self._producer: Producer | None = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def transactional_id(self) -> str:
        """The transactional id."""
        return self._id

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        *,
        locate: bool = True,
    ) -> Outcome:
        """Stores all or nothing; see the port."""
        doing = "transaction of " + (self._id if membership is None else f"group {membership.group!r}")
        if membership is not None and not callable(positions):
            fenced_requests(positions, doing)  # an invalid position is refused before anything begins
        if membership is not None and not in_force(membership):
            return _aborted(FailedPrecondition(f"{doing}: not a member of the group now"))
        with self._lock:
            try:
                producer = self._ready()
            except PubSubError as failure:
                return _aborted(failure)
            reports = locate or self._careful > 0 or callable(positions)
            attempt = _Attempt(producer, records, positions, membership, doing, reports)
            careful, self._careful = max(0, self._careful - bool(records)), _CAREFUL
            try:
                attempt.prepare()
            except PubSubError as failure:
                self._abort(attempt)
                return _aborted(failure)
            except KafkaException as failure:
                self._abort(attempt, failure)
                # Only now are all reports here: offsets may be refused for a record whose report comes later.
                reason = self._reason(attempt.cause(failure), attempt.refused_step(id_of(self._id)))
                if attempt.failed:
                    # Its sequence numbers have a hole now, so the next transaction would fail.
                    self._discard()
                free = self._find_batched(attempt) | self._find_new(attempt)
                refused = {
                    number: self._reason(KafkaException(error), attempt.writing(number))
                    for number, error in attempt.refused.items()
                    if number not in free
                }
                if free and not refused:
                    reason = FailedPrecondition(f"{reason.message}; the next try may go through")
                if attempt.silent:
                    reason = silence(doing, {attempt.written[number].topic for number in attempt.silent})
                return Outcome(Ending.ABORTED, (), reason, refused, attempt.silent)
            return self._commit(attempt, doing, locate, careful)

    def fence(self, transactional_id: str) -> None:
        """Ends an open transaction of the id; see the port."""
        if transactional_id == self._id:
            with self._lock:
                self._discard()
                self._ready()
            return
        self._handles.check()
        producer = self._start(transactional_id)
        self._handles.close_producer(producer)

    def close(self) -> None:
        """Closes the producer; between two calls no transaction is open.

        Waits a few seconds for an open transaction; after that the broker ends it.
        """
        self._closed = True
        if not self._lock.acquire(timeout=_CLOSE_S):
            _log.warning("transactions of %s: closed while one is under way; the log ends it", self._id)
            return
        try:
            producer, self._producer = self._producer, None
            if producer is not None:
                self._handles.close_producer(producer)
        finally:
            self._lock.release()

    # -- the producer ----------------------------------------------------------------------------------------

    def _ready(self) -> Producer:
        self._handles.check()
        if self._closed:
            raise FailedPrecondition(f"the transactions of {self._id!r} are closed")
        if self._producer is None:
            self._producer = self._start(self._id)
        return self._producer

    def _start(self, transactional_id: str) -> Producer:
        """Returns a producer that has fenced all others of the id; their transactions have ended."""
        rules = {**_RULES, "batch.size": self._batch, "transactional.id": transactional_id}
        producer = self._handles.producer(_DEFAULTS, rules, self._trouble.note)
        calls, init = Bounded(_THREAD), partial(self._handles.init_transactions, producer)
        try:
            ask(
                lambda left: calls.run(partial(init, left), left + _STUCK_S),
                Doing(f"take over the transactions of {transactional_id!r}", id_of(transactional_id)),
                address=self._handles.address,
                trouble=self._trouble,
                deadline=_START_S,
            )
        except PubSubError:
            self._handles.discard(producer)
            raise
        return producer

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            self._handles.discard(producer)

    def _find_new(self, attempt: _Attempt) -> set[int]:
        """Returns the refused records whose partition the producer only didn't know yet (rule 9)."""
        unknown = attempt.refused_for(KafkaError._UNKNOWN_PARTITION)
        try:
            return {number for number in unknown if self._exists(attempt.written[number])}
        except (KafkaException, PubSubError):
            return unknown  # no broker has said that they don't exist

    def _find_batched(self, attempt: _Attempt) -> set[int]:
        """Returns the records whose batch was refused for its size, if others may have been in it (rule 10)."""
        found = attempt.refused_for(KafkaError.MSG_SIZE_TOO_LARGE)
        smallest = min(map(self._limit, {attempt.written[number].topic for number in found}), default=_BATCH)
        if smallest >= self._batch:
            return set()
        self._batch = smallest
        return found

    def _limit(self, topic: str) -> int:
        """Returns how many bytes a batch for the topic may have; 1, so each record goes alone, if that isn't known."""
        try:
            return int(self._admin.topic(topic).config.get("max.message.bytes", 1))
        except PubSubError:
            return 1

    def _exists(self, record: NewRecord) -> bool:
        found = self._ready().list_topics(record.topic, timeout=_METADATA_S).topics.get(record.topic)
        return found is not None and record.partition in found.partitions

    # -- the end of a transaction ----------------------------------------------------------------------------

    def _abort(self, attempt: _Attempt, failure: KafkaException | None = None) -> None:
        if attempt.stuck or (failure is not None and error_of(failure).fatal()):
            self._discard()
            return
        try:
            attempt.abort()
        except KafkaException as refused:
            # The next producer ends the transaction, and its outcome reports why it failed.
            _log.info("transaction of %s: not aborted in good order: %s", self._id, error_of(refused).str())
            self._discard()

    def _commit(self, attempt: _Attempt, doing: str, locate: bool, careful: int) -> Outcome:
        try:
            attempt.commit()
        except KafkaException as failure:
            reason = self._reason(failure, doing)
            self._discard()
            return Outcome(Ending.UNKNOWN, tuple(attempt.offsets) if locate else (), reason)
        self._careful = careful
        self._trouble.clear()
        return Outcome(Ending.STORED, tuple(attempt.offsets) if locate else ())

    def _reason(self, failure: KafkaException, doing: str) -> PubSubError:
        return explain(failure, doing, self._handles.address, self._trouble)


class _Attempt:
    """One transaction from its begin to its end."""

    def __init__(
        self,
        producer: Producer,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        doing: str,
        reports: bool,
    ) -> None:
        self._producer = producer
        self._reports = reports
        self._records = records
        self._positions = positions
        self._membership = membership
        self._doing = doing
        self._calls = Bounded(_THREAD)
        # How many reports are awaited.
        self._waiting = 0
        self._failed: KafkaError | None = None
        #: The records that were queued or refused, by their number.
        self.written: list[NewRecord] = []
        #: Records that the log refuses, by their number, with the reason.
        self.refused: dict[int, KafkaError] = {}
        #: Where the records were stored, by their order; -1: not yet. Empty without reports.
        self.offsets: list[int] = []
        #: The records that got no answer in time, as far as reports tell.
        self.silent: Collection[int] = ()

    @property
    def stuck(self) -> bool:
        """Whether a call hasn't returned: the producer must not be used any more (rule 4)."""
        return self._calls.busy

    @property
    def failed(self) -> bool:
        """Whether a record wasn't stored, for any reason."""
        return self._failed is not None

    def prepare(self) -> None:
        """Makes all steps but the commit."""
        end = time.monotonic() + _DEADLINE
        self._producer.begin_transaction()
        positions = self._positions
        if not callable(positions):
            self._store(positions, end)
            self._write_all(self._records)
            self._wait_for_reports(end)
            return
        self._write_all(self._records)
        while callable(positions):
            self._wait_for_reports(end)
            given = positions(self.offsets)
            if given is None:
                raise FailedPrecondition(f"{self._doing}: no positions came for its records")
            end = time.monotonic() + _DEADLINE
            records, positions = given if isinstance(given, Further) else ((), given)
            self._write_all(records)
        # The records are sent while the coordinator answers.
        self._store(positions, end)
        self._wait_for_reports(end)

    def _store(self, positions: Positions, end: float) -> None:
        if self._membership is None:
            return
        for request in fenced_requests(positions, self._doing):
            left = max(end - time.monotonic(), _SLICE)
            self._call(
                partial(self._producer.send_offsets_to_transaction, request, self._membership.token, left),
                max(left, _OFFSETS_S),
            )

    def _wait_for_reports(self, end: float) -> None:
        while self._failed is None and self._unreported():
            if time.monotonic() > end:
                self.silent = [number for number, offset in enumerate(self.offsets) if offset < 0]
                raise KafkaException(
                    KafkaError(KafkaError._TIMED_OUT, "records weren't acknowledged in time")
                )
        if self._failed is not None:
            raise cause_of(self._producer, self._failed)

    def _unreported(self) -> bool:
        """Waits a moment; returns whether records are still on their way."""
        if not self._reports:
            return self._producer.flush(_SLICE) > 0
        if self._waiting:
            self._producer.poll(_SLICE)
        return self._waiting > 0

    def commit(self) -> None:
        """Commits, and asks again while there is no answer."""
        end = time.monotonic() + _DEADLINE
        while True:
            try:
                left = max(end - time.monotonic(), _SLICE)
                self._call(partial(self._producer.commit_transaction, left), left)
                return
            except KafkaException as failure:
                if self.stuck or not error_of(failure).retriable() or time.monotonic() > end:
                    raise

    def abort(self) -> None:
        """Ends the transaction in good order."""
        self._call(partial(self._producer.abort_transaction, _ABORT_S), _ABORT_S)

    def _call(self, call: Callable[[], object], seconds: float) -> None:
        """Makes a call of librdkafka that should take `seconds` at most."""
        self._calls.run(call, seconds + _STUCK_S)

    def cause(self, failure: KafkaException) -> KafkaException:
        """Prefers the error of a refused record to "the transaction must be aborted"."""
        purged = self._failed is None or self._failed.code() in DROPPED
        return failure if purged else KafkaException(self._failed)

    def writing(self, *numbers: int) -> Doing:
        """Returns the name of the transaction, with the rights that it needs to write these records."""
        return Doing(self._doing, *on_topics("WRITE", *(self.written[number].topic for number in numbers)))

    def refused_step(self, own: Right) -> Doing:
        """Returns the name of the transaction, with the rights that the step that failed needed."""
        if self.failed or self._membership is None:
            records = self.writing(*(self.refused or range(len(self.written))))
            return Doing(self._doing, own, *records.needs)
        places = () if callable(self._positions) else self._positions
        group = of_group(self._membership.group, self._doing, *(place.topic for place in places))
        return Doing(self._doing, own, *group.needs)

    def _write_all(self, records: Sequence[NewRecord]) -> None:
        first = len(self.written)
        self.written += records
        if self._reports:
            self.offsets += [-1] * len(records)
        for number, record in enumerate(records, first):
            try:
                self._write(record, self._report_to(number) if self._reports else None)
            except KafkaException as failure:
                self._fails(number, error_of(failure))
                raise

    def refused_for(self, code: int) -> set[int]:
        """Returns the records that were refused with this error."""
        return {number for number, error in self.refused.items() if error.code() == code}

    def _report_to(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, stored: Message) -> None:
            self._waiting -= 1
            offset = stored.offset()
            if error is None and offset is not None:
                self.offsets[number] = offset
            elif error is not None:
                self._fails(number, error)

        self._waiting += 1
        return delivered

    def _write(self, record: NewRecord, report: Callable[[KafkaError | None, Message], None] | None) -> None:
        topic, partition, key, value, headers, timestamp = record
        # By place: names cost a third more.
        self._producer.produce(topic, value, key, partition, report, None, max(timestamp, 0), list(headers))

    def _fails(self, number: int, error: KafkaError) -> None:
        if self._failed is None or self._failed.code() in DROPPED:
            self._failed = error
        if error.code() in _OF_THE_RECORD:
            self.refused[number] = error


def _aborted(reason: PubSubError) -> Outcome:
    return Outcome(Ending.ABORTED, (), reason)
