"""A log writer over librdkafka's producer: idempotent, pipelined, without gaps.

Theory: librdkafka has several unanswered batches of a partition at a time, which makes it fast. A batch that
the broker refuses would leave those behind it stored. So sizes are checked before anything is queued, no message
times out, `enable.gapless.guarantee` stops the producer at the first refusal, `PartitionWarmup` covers the one case
that this doesn't cover, and this writer replaces the stopped producer.

Rules
1. After a refusal nothing is accepted (`BufferError`) until every message of the stopped producer was reported;
   only then it makes a new producer. So a publisher that pauses keys in reports has paused all of them by then.
2. A report's error that may hide a stored message says so; `explain` never claims more than is known.
3. A waiting `poll` or `flush` stays below 0.2 s: above, the Python client calls on after a fatal error with the
   exception still set, and reports would be lost.
4. A stopped producer is freed `RETIRE_S` later: a call of another thread may still be inside it.
5. A producer that has lost its brokers is replaced (decisions 046 and 073). librdkafka forgets all brokers when one
   answers that there is none, and may never find them again. `poll` and `flush` both look, because a flush may wait
   for as long as messages do, and nothing polls meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import PublishError, PubSubError
from kafka_pubsub.log.kafka.broker_watch import LOST_S, look_for_brokers
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.client_settings import Settings, join_settings
from kafka_pubsub.log.kafka.configuration import ConfigValue
from kafka_pubsub.log.kafka.errors import error_of, is_denial, translate
from kafka_pubsub.log.kafka.partition_warmup import NOT_SENT, PRIMED_FOR_S, Held, PartitionWarmup, Report
from kafka_pubsub.log.kafka.rights import looking_at, publishing_to
from kafka_pubsub.log.ports import LogWriter
from kafka_pubsub.model import Header

__all__ = ["KafkaLogWriter"]

_log = logging.getLogger("kafka_pubsub.publish")

_ANY_PARTITION: Final = -1
_NOW: Final = 0
_NO_KEYS: Final[frozenset[bytes]] = frozenset()

# Seconds; see rule 3.
_LONGEST_WAIT_S: Final = 0.1
# Seconds to wait for the answers to a stopped producer's last requests; a healthy broker needs milliseconds.
_DRAIN_S: Final = 5.0
# How often a broker is asked for a new producer's id; away for longer than these times `_LONGEST_WAIT_S`, it has
# cost more than the half second that is spared.
_INTRODUCTIONS: Final = 10
# Seconds; a call of produce takes microseconds.
_RETIRE_S: Final = 10.0
# Seconds; a broker that has just answered answers this in milliseconds.
_METADATA_S: Final = 5.0

# Reports after which the message can't be in the log: the broker refused it, or it was never sent.
_NOT_STORED: Final = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


def producer_settings(batching: Batching, max_batch_bytes: int) -> Settings:
    """Returns librdkafka's settings."""
    rules: dict[str, ConfigValue] = {
        "client.id": "kafka_pubsub-writer",
        "enable.idempotence": True,
        "acks": "all",
        "enable.gapless.guarantee": True,
        # A message that times out in the middle leaves a gap: it waits for the broker without a limit.
        "message.timeout.ms": 0,
    }
    return join_settings(batching, max_batch_bytes, batching.max_latency, rules)


def _is_purged(error: object) -> bool:
    return isinstance(error, KafkaError) and error.code() == KafkaError._PURGE_QUEUE


class _Channel:
    """A direct call of the producer for a topic, while all of the topic's partitions are primed."""

    __slots__ = ("quick",)

    def __init__(self) -> None:
        self.quick: Callable[..., None] | None = None


class _Session:
    """One producer, from its start to its end."""

    def __init__(self, producer: Producer, channel: Callable[[str], _Channel]) -> None:
        self.producer = producer
        self.produce: Callable[..., None] = producer.produce
        self.warmup = PartitionWarmup(self._send, self._count, self._all_open)
        self._channel = channel
        # The channels that call this producer.
        self._open_channels: list[_Channel] = []
        # How often it may still be introduced to a broker.
        self.introductions = _INTRODUCTIONS
        self.stopped_because: str | None = None
        self.give_up_at = 0.0

    def _send(self, message: Held, report: Report) -> None:
        self.produce(
            message.topic(),
            message.value(),
            message.key(),
            _ANY_PARTITION,
            report,
            None,
            _NOW,
            message.headers(),
        )

    def _count(self, topic: str) -> int | None:
        try:
            return self.ask_count(topic) or None
        except KafkaException:
            return None

    def ask_count(self, topic: str) -> int:
        """Returns the topic's number of partitions, which librdkafka uses from now on; 0: there is no such topic."""
        found = self.producer.list_topics(topic, timeout=_METADATA_S).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def _all_open(self, topic: str, are: bool) -> None:
        channel = self._channel(topic)
        channel.quick = self.producer.produce if are else None
        self._open_channels.append(channel)
        if self.stopped_because is not None:
            self.shut()

    def shut(self) -> None:
        """Closes all channels to this producer."""
        self.produce = self.refuse
        for channel in self._open_channels:
            channel.quick = None

    def refuse(self, *_: object) -> None:
        """Takes the place of `produce` once the producer has stopped."""
        raise BufferError("the producer stopped after a refused message and is being replaced: try again")


class KafkaLogWriter(LogWriter):
    """A `LogWriter` over librdkafka. Any thread may append; reports run in the thread that polls or flushes."""

    def __init__(self, handles: ClientFactory, batching: Batching, max_batch_bytes: int) -> None:
        self._handles = handles
        self._defaults, self._rules = producer_settings(batching, max_batch_bytes)
        # Guards the change of producers.
        self._lock = threading.Lock()
        # Stopped producers, and when they may be freed.
        self._retired: list[tuple[float, Producer]] = []
        self._reprime_at = time.monotonic() + PRIMED_FOR_S
        # Whether an answer may have been lost since the producer was made.
        self._disturbed = False
        # When the last report came, nothing was waited for, or the first trouble came (monotonic seconds).
        self._answered_at = time.monotonic()
        self._closed = False
        # Why the broker refused the producer, which has sent nothing then; None: it didn't.
        self._denied: KafkaError | None = None
        self._channels: dict[str, _Channel] = {}
        self._session = self._new_session()

    def channel(self, topic: str) -> _Channel:
        """Returns the channel of a topic, always the same object; whether it is open changes."""
        return self._channels.setdefault(topic, _Channel())

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        on_delivery: Report,
        partition: int = _ANY_PARTITION,
    ) -> None:
        """Queues a record; raises `BufferError` while a stopped producer is being replaced."""
        session = self._session
        warmup = session.warmup
        try:
            keys = warmup.open.get(topic, _NO_KEYS)
            if key is None or keys is None or key in keys:
                session.produce(topic, value, key, partition, on_delivery, None, _NOW, headers)
            else:
                warmup.admit(Held(topic, value, key, headers, on_delivery))
        except KafkaException as failure:
            raise self._refusal(session, failure) from None

    def _refusal(self, session: _Session, failure: KafkaException) -> Exception:
        error = error_of(failure)
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fail(session, error)
            return BufferError(
                "the producer stopped after a refused message and is being replaced: try again"
            )
        return self.explain(error)

    def poll(self, timeout: float) -> int:
        """Runs reports; waits up to `timeout` seconds (0.1 at most) for the first."""
        session = self._session
        self._introduce(session)
        served = self._serve(session, lambda: session.producer.poll(min(timeout, _LONGEST_WAIT_S)))
        self._keep_house(session)
        if self._disturbed:
            self._watch(session, heard=served > 0)
        return served

    def flush(self, timeout: float) -> int:
        """Sends without waiting for full batches, for `timeout` seconds (0.1 at most); returns how many are left."""
        session = self._session
        self._introduce(session)
        before = len(session.producer)
        self._serve(session, lambda: session.producer.flush(min(timeout, _LONGEST_WAIT_S)))
        self._keep_house(session)
        left = len(session.producer)
        if self._disturbed:
            # Appends of other threads may hide reports: then a producer that answers is asked in vain.
            self._watch(session, heard=left < before)
        return left + session.warmup.held

    def _introduce(self, session: _Session) -> None:
        """Spares a new producer's first message half a second, unless the brokers are away."""
        if session.introductions:
            met = self._handles.introduce(session.producer, _LONGEST_WAIT_S)
            session.introductions = 0 if met else session.introductions - 1

    def _serve(self, session: _Session, call: Callable[[], int]) -> int:
        try:
            return call()
        except KafkaException as failure:
            error = error_of(failure)
            if error.fatal():
                self._fail(session, error)
            else:
                _log.error("serving delivery reports: %s", translate(error, "publish").message)
            return 0

    def relearn(self, topic: str) -> int:
        """Requests the topic's number of partitions, and spreads keys over that number from now on."""
        session = self._session
        try:
            count = session.ask_count(topic)
        except KafkaException as failure:
            raise translate(failure, looking_at([topic], "partitions of topic {}")) from None
        session.warmup.forget(topic)
        return count

    def explain(self, error: object, topic: str = "") -> PubSubError:
        """Translates a report's error, which says whether the message may be in the topic."""
        if isinstance(error, KafkaException):
            error = error_of(error)
        if self._denied is not None and (isinstance(error, str) or _is_purged(error)):
            denial = translate(self._denied, publishing_to(topic))
            return PublishError(f"{denial.message}; the message isn't in the topic", code=denial.code)
        if not isinstance(error, KafkaError):
            return error if isinstance(error, PubSubError) else PublishError(f"publish: {error}")
        if _is_purged(error) and not self._disturbed:
            return PublishError(f"publish: {NOT_SENT}")
        if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return PublishError(
                "publish: no answer came before the producer was closed or replaced; the message may be in the topic"
            )
        meaning = translate(error, publishing_to(topic))
        certain = error.code() in _NOT_STORED
        outcome = "isn't in the topic" if certain else "may be in the topic or not"
        return PublishError(f"{meaning.message}; the message {outcome}", code=meaning.code)

    def close(self) -> None:
        """Reports messages that weren't stored by now as failed, and frees the producer."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            producers = [producer for _, producer in self._retired]
            self._retired = []
        session = self._session
        session.shut()
        self._give_up(session)
        for producer in [*producers, session.producer]:
            self._handles.close_producer(producer)

    def _give_up(self, session: _Session) -> None:
        # Polling reports all purged messages; the limit is for a broker thread that hangs.
        end = time.monotonic() + _DRAIN_S
        self._purge(session.producer, in_flight=True)
        while len(session.producer) and time.monotonic() < end:
            self._serve(session, lambda: session.producer.poll(_LONGEST_WAIT_S))
        session.warmup.fail_all()

    def _new_session(self) -> _Session:
        self._disturbed, self._denied = False, None
        return _Session(self._handles.producer(self._defaults, self._rules, self._note_trouble), self.channel)

    def _note_trouble(self, _: KafkaError) -> None:
        if not self._disturbed:
            self._answered_at = time.monotonic()
        self._disturbed = True

    def _fail(self, session: _Session, error: KafkaError) -> None:
        if is_denial(error):
            self._denied = error
        self._stop(session, error.str())

    def _stop(self, session: _Session, reason: str) -> None:
        with self._lock:
            if session.stopped_because is not None:
                return
            session.stopped_because = reason
            session.shut()
            session.give_up_at = time.monotonic() + _DRAIN_S
        _log.warning("the producer is replaced, to keep the order of its messages: %s", reason)

    def _keep_house(self, session: _Session) -> None:
        session.warmup.learn()
        now = time.monotonic()
        if session.stopped_because is not None and not self._closed:
            self._replace(session, now)
        if now >= self._reprime_at:
            self._reprime_at = now + PRIMED_FOR_S
            session.warmup.expire()
        while self._retired and self._retired[0][0] <= now:
            self._handles.close_producer(self._retired.pop(0)[1])

    def _watch(self, session: _Session, *, heard: bool) -> None:
        now = time.monotonic()
        if heard or not len(session.producer):
            self._answered_at = now
        elif now - self._answered_at > LOST_S and session.stopped_because is None:
            self._answered_at = now
            look_for_brokers(session.producer.list_topics, self._handles, lambda: self._lost(session))

    def _lost(self, session: _Session) -> None:
        if not self._closed:
            self._stop(session, "the client library has lost the brokers")

    def _replace(self, session: _Session, now: float) -> None:
        # Messages that the broker refused behind the first failure go back into the queue, and would wait for ever.
        self._purge(session.producer, in_flight=now >= session.give_up_at)
        if len(session.producer):
            return
        session.warmup.fail_all()
        with self._lock:
            if self._session is session and not self._closed:
                self._retired.append((now + _RETIRE_S, session.producer))
                self._session = self._new_session()

    @staticmethod
    def _purge(producer: Producer, in_flight: bool) -> None:
        try:
            producer.purge(in_queue=True, in_flight=in_flight, blocking=False)
        except KafkaException as failure:
            _log.warning("purging a stopped producer: %s", error_of(failure).str())
