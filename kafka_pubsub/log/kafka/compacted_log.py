"""The compacted topic behind the catalog: latest values by key; of several changes at once, only one wins.

Theory of a change: all writers share one transactional id (the topic's name). A writer begins with
`init_transactions`, which fences every other writer and ends its open transaction. From then on this writer alone can
commit; so it reads the topic up to its end, compares, writes and commits. If another writer came in between, the
commit fails and readers never see the records. A losing record never reaches the readers, so compaction can't
keep it instead of the winner.

Rules
1. A producer that wasn't fenced since its `init_transactions` knows that no other writer wrote since; it is kept for
   the next change (an `init_transactions` right after another writer's commit waits 500 ms inside librdkafka).
2. If the answer to a commit is lost, the topic is read again: the change is there, or it isn't and is tried again.
3. Reading costs one round trip when nothing is new: the consumer stays, paused (a fetch that waits at the broker
   would hold up every other request on that connection).
4. A change returns when it can be read: a commit is answered a few milliseconds before its marker lets readers pass,
   and until then its author, and every process that the author informs, would read the old state.
5. A topic that has vanished or shrunk is asked for again before its values are dropped: for a stream an empty catalog
   means that its subscription was deleted. A broker that starts after an outage knows no topic, or less of it, for a
   moment: values are shown until a new consumer has read as far as the last one had.
6. A removal is kept in the topic for a day at least; a reader that hasn't read for longer reads from the start.
7. The time limit of a call begins before it waits for the calls of other threads: without a broker each of those takes
   as long as it may.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from kafka_pubsub.errors import AlreadyExists, BrokerUnavailable, FailedPrecondition, NotFound, PubSubError
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.bounded_calls import DEADLINE, ask, explain
from kafka_pubsub.log.kafka.client_factory import ClientFactory, Trouble
from kafka_pubsub.log.kafka.configuration import ConfigValue
from kafka_pubsub.log.kafka.errors import FENCED, STALE_LEADER, TRANSIENT, error_of, is_denial
from kafka_pubsub.log.kafka.rights import Doing, id_of, on_topics
from kafka_pubsub.log.kafka.transaction_errors import DROPPED
from kafka_pubsub.model import TopicInfo

__all__ = ["CATALOG_TOPIC", "CatalogLog", "Decide"]

CATALOG_TOPIC = "_kafka_pubsub.catalog"

#: The settings with which the topic is made; an operator who makes it needs the same.
CATALOG_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # Milliseconds that a removal stays readable: a week, far above `_STALE_AFTER`.
    "delete.retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

#: Takes the latest values and returns what to write for the key (the value, or None for a removal), or raises.
Decide = Callable[[Mapping[str, bytes]], bytes | None]

_READER_DEFAULTS: Mapping[str, ConfigValue] = {
    "queued.max.messages.kbytes": 4_096,
    # Milliseconds. The consumer only fetches while there is something to read, so nothing is gained by waiting.
    "fetch.wait.max.ms": 10,
}
READER_RULES: Mapping[str, ConfigValue] = {
    # librdkafka needs a group; it is never joined, because partitions are assigned by hand.
    "group.id": "_kafka_pubsub.catalog-readers",
    "client.id": "kafka_pubsub-catalog",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
}
WRITER_RULES: Mapping[str, ConfigValue] = {
    "client.id": "kafka_pubsub-catalog",
    "enable.idempotence": True,
    "acks": "all",
    # Milliseconds after which the broker ends the transaction of a killed writer; readers wait that long.
    "transaction.timeout.ms": 10_000,
    "linger.ms": 0,
}

#: Events after which a reader goes on: the end of the log, and a refusal to join the group, which it never does.
_NO_FAILURE = frozenset({KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED})

#: What Kafka 4.0 says of a record whose transaction another writer's `init_transactions` has just ended.
_ENDED = frozenset({KafkaError.INVALID_TXN_STATE})

#: Seconds for one change, fencing and all tries included: 20 writers at once need about 10.
_CHANGE_DEADLINE = 30.0

#: Seconds that a new and busy cluster may need beyond the usual to make the topic of its transactions.
_LOADING = 45.0

#: Seconds without reading after which a reader starts again from the beginning; half a day, the default of
#: delete.retention.ms being one.
_STALE_AFTER = 12 * 3600.0

#: Seconds for which the topic must be missing, or shorter than it was, before that counts. A broker that has just
#: started knows no topic for a moment, and shows the end that it had stored seconds before it died.
_GONE_AFTER = 10.0

#: Seconds between two requests whether it is there again.
_LOOK_AGAIN = 0.2

#: Seconds for which an idle producer is kept.
_KEEP_PRODUCER = 10.0

#: Seconds for which closing waits for a read or a change that has begun.
_CLOSE_WAIT = 1.0

#: Seconds between two checks for Ctrl-C while reading.
_SLICE = 0.1


class _Lost(Exception):
    """Another writer came first, or the answer was lost: the change is decided anew."""

    def __init__(self, cause: PubSubError) -> None:
        super().__init__(cause.message)
        self.cause = cause


class CatalogLog:
    """The keys and values of the catalog's topic."""

    def __init__(
        self,
        handles: ClientFactory,
        admin: KafkaAdmin,
        *,
        create: bool,
        topic: str = CATALOG_TOPIC,
        deadline: float = DEADLINE,
    ) -> None:
        self._handles = handles
        self._deadline = deadline
        self._topic = topic
        self._reading = Doing("read the catalog", *on_topics("READ", topic))
        self._id = id_of(topic)
        self._admin = admin
        self._create = create
        self._trouble = Trouble()
        # Held over each read or change: one consumer, one producer, one at a time.
        self._lock = threading.RLock()
        # None until the topic was found, and after an outage.
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._used = 0.0
        # The latest values, and those that the consumer has read, up to `_next`. They differ until a new consumer has
        # reached `_known`, up to which the consumer before it had read. Empty: nothing stored, or not read yet.
        self._values: dict[str, bytes] = {}
        self._read: dict[str, bytes] = {}
        self._next = self._known = 0
        # The copy that callers have, as of their last call.
        self._shown: Mapping[str, bytes] = {}
        self._read_at = 0.0
        # Kafka's id of the topic that was read; empty until one was.
        self._topic_id = ""
        # `close` is running, or has given up waiting for a thread that reads or writes.
        self._closing = False
        # Since when the topic ends before what was read; None: it doesn't.
        self._shrunk_at: float | None = None

    def values(self) -> Mapping[str, bytes]:
        """Returns the latest values, the same object while nothing changes; empty while there is no catalog."""
        self._handles.check()
        with self._held(self._reading, self._deadline) as end:
            self._let_go_of_idle_producer()
            self._refresh(end)
            if self._shown != self._values:
                self._shown = dict(self._values)
            return self._shown

    def change(self, key: str, what: str, decide: Decide) -> None:
        """Writes the value that `decide` returns; calls `decide` again if another writer came first."""
        self._handles.check()
        doing = Doing(f"change {what}", *on_topics("WRITE", self._topic), self._id)
        retries = Retrying(
            retry=retry_if_exception_type(_Lost),
            stop=stop_after_delay(_CHANGE_DEADLINE),
            # Seconds, with full jitter, or two writers would fence each other for ever.
            wait=wait_random_exponential(multiplier=0.05, max=2),
            retry_error_callback=_give_up,
        )
        with self._held(doing, self._deadline) as end:
            self._make_topic(end)
            retries(lambda: self._try(key, doing, decide))

    @contextlib.contextmanager
    def _held(self, doing: str, seconds: float) -> Iterator[float]:
        """Holds the lock; yields the time at which a call of so many seconds ends (rule 7)."""
        end = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            busy = KafkaException(KafkaError(KafkaError._TIMED_OUT, "another thread waits for an answer"))
            raise explain(busy, doing, self._handles.address, self._trouble)
        try:
            yield end
        finally:
            self._lock.release()

    def close(self) -> None:
        """Closes both clients. If a thread still waits for the broker with them, it goes on with its own."""
        self._closing = True
        if not self._lock.acquire(timeout=_CLOSE_WAIT):
            if self._producer is not None:
                self._handles.release(self._producer)
            if self._consumer is not None:
                self._handles.abandon(self._consumer)
            return
        try:
            self._drop_producer()
            self._drop_consumer()
            self._closing = False
        finally:
            self._lock.release()

    def _check_open(self) -> None:
        # A thread that `close` didn't wait for gets here: no `close` would follow for a client that is made now.
        if self._closing:
            raise FailedPrecondition("this PubSub is closed; create a new one")

    # -- writing ---------------------------------------------------------------------------------------------

    def _try(self, key: str, doing: str, decide: Decide) -> None:
        try:
            producer = self._begin_writing()
            self._refresh(time.monotonic() + self._deadline)
            value = decide(self._values)
            self._write(producer, key.encode(), value)
        except KafkaException as failure:
            self._drop_producer(failed=True)
            error = error_of(failure)
            explained = explain(failure, doing, self._handles.address, self._trouble)
            again = error.code() in FENCED | TRANSIENT or error.retriable() or error.txn_requires_abort()
            if again and not is_denial(error):
                raise _Lost(explained) from None
            raise explained from None

    def _begin_writing(self) -> Producer:
        if self._producer is None:
            self._check_open()
            producer = self._handles.producer(
                {}, {**WRITER_RULES, "transactional.id": self._topic}, self._trouble.note
            )
            self._producer = producer
            ask(
                partial(self._handles.init_transactions, producer),
                Doing(f"open the catalog for writing (transactional id {self._topic!r})", self._id),
                address=self._handles.address,
                trouble=self._trouble,
                loading=_LOADING,
            )
        self._used = time.monotonic()
        return self._producer

    def _write(self, producer: Producer, key: bytes, value: bytes | None) -> None:
        refused: list[KafkaError] = []
        written = 0

        def delivered(error: KafkaError | None, record: Message) -> None:
            nonlocal written
            if error is not None:
                refused.append(error)
            else:
                written = (record.offset() or 0) + 1

        producer.begin_transaction()
        producer.produce(self._topic, value, key, partition=0, on_delivery=delivered)
        try:
            producer.commit_transaction(_CHANGE_DEADLINE)
        except KafkaException:
            # The record's own error says more than "the transaction must be aborted", unless it is a consequence.
            if refused and refused[0].code() not in FENCED | DROPPED | _ENDED:
                raise KafkaException(refused[0]) from None
            raise
        self._refresh(time.monotonic() + self._deadline, written)

    def _make_topic(self, end: float) -> None:
        if self._consumer is not None:
            return
        try:
            info = self._admin.topic(self._topic, deadline=_left(end))
        except NotFound:
            if self._topic_id and self._found_again(end):
                return
            if not self._create:
                raise FailedPrecondition(
                    f"the catalog's topic {self._topic!r} doesn't exist and this PubSub may not create topics: "
                    f"have it made with 1 partition and {_settings_text()}, and as many replicas as matter"
                ) from None
            try:
                info = self._admin.create_topic(self._topic, 1, None, CATALOG_SETTINGS)
            except AlreadyExists:
                info = self._admin.topic(self._topic)
        self._open(info)

    def _let_go_of_idle_producer(self) -> None:
        if self._producer is not None and time.monotonic() - self._used > _KEEP_PRODUCER:
            self._drop_producer()

    def _drop_producer(self, *, failed: bool = False) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            (self._handles.release if failed else self._handles.close_producer)(producer)

    # -- reading ---------------------------------------------------------------------------------------------

    def _refresh(self, end: float, at_least: int = 0) -> None:
        """Reads the log to its end, until the time `end`; `at_least` is an offset that is known to be committed."""
        now = time.monotonic()
        if now - self._read_at > _STALE_AFTER:
            self._drop_consumer()
        try:
            if self._consumer is None:
                self._open(self._admin.topic(self._topic, deadline=_left(end)))
            ask(
                lambda left: self._catch_up(left, at_least),
                self._reading,
                address=self._handles.address,
                trouble=self._trouble,
                deadline=_left(end),
            )
        except NotFound:
            if not self._topic_id:
                return
            if not self._found_again(end):
                self._forget()
                return
        except BrokerUnavailable:
            # A consumer that has lost its brokers doesn't find them again (decision 046).
            self._drop_consumer()
            raise
        self._read_at = now

    def _found_again(self, end: float) -> bool:
        """Returns whether the topic was missing for a moment only and can be read again; if not, it was deleted."""
        until = time.monotonic() + _GONE_AFTER
        while time.monotonic() < until:
            time.sleep(_LOOK_AGAIN)
            try:
                info = self._admin.topic(self._topic, deadline=_left(end))
            except NotFound:
                continue
            self._drop_consumer()
            self._open(info)
            self._refresh(end)
            return True
        return False

    def _open(self, info: TopicInfo) -> None:
        policy = info.config.get("cleanup.policy", "compact")
        if info.partitions != 1 or policy != "compact":
            raise FailedPrecondition(
                f"the catalog's topic {self._topic!r} has {info.partitions} partitions and "
                f"cleanup.policy={policy}, which would lose or hide records: it must have 1 partition and "
                f"{_settings_text()}"
            )
        self._check_open()
        if info.topic_id != self._topic_id:
            self._forget()
            self._topic_id = info.topic_id
        consumer = self._handles.consumer(_READER_DEFAULTS, READER_RULES, self._trouble.note)
        consumer.assign([KafkaPartition(self._topic, 0, 0)])
        self._known = max(self._known, self._next)
        # -1: even of an empty topic the end is read once. A partition that is paused before it was ever fetched
        # takes a second to begin.
        self._consumer, self._read, self._next = consumer, {}, -1
        self._shrunk_at, self._read_at = None, time.monotonic()
        self._handles.known_topic = self._topic

    def _catch_up(self, left: float, at_least: int) -> None:
        consumer = self._consumer
        if consumer is None:
            return
        partition = KafkaPartition(self._topic, 0)
        end = self._end_of(consumer, partition, left)
        if end < max(self._next, self._known):
            if not self._made_anew(left):
                return
            self._read, self._next, self._known = {}, 0, 0
        self._shrunk_at = None
        end = max(end, at_least)
        if end != self._next:
            self._read_to(end, consumer, partition, left)
        self._values, self._known = self._read, 0

    def _read_to(self, end: int, consumer: Consumer, partition: KafkaPartition, left: float) -> None:
        until = time.monotonic() + left
        consumer.resume([partition])
        try:
            # Also wakes librdkafka's fetcher, which after a pause sleeps for up to a second.
            consumer.seek(KafkaPartition(self._topic, 0, max(self._next, 0)))
            while self._next < end:
                self._take(consumer.consume(500, 0) or consumer.consume(1, _SLICE))
                if time.monotonic() > until:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        finally:
            consumer.pause([partition])

    def _end_of(self, consumer: Consumer, partition: KafkaPartition, left: float) -> int:
        """Returns the last stable offset (the end under read_committed): no committed record lies behind it."""
        try:
            return consumer.get_watermark_offsets(partition, timeout=left)[1]
        except KafkaException as failure:
            if error_of(failure).code() in STALE_LEADER:
                # librdkafka would go on asking the leader that it remembers; this makes it look again.
                with contextlib.suppress(KafkaException):
                    consumer.list_topics(self._topic, timeout=min(left, 1.0))
            raise

    def _made_anew(self, left: float) -> bool:
        """Returns whether a topic that ends before what was read is another one: one that just started shows less."""
        known, self._topic_id = self._topic_id, self._admin.topic(self._topic, deadline=left).topic_id
        if self._topic_id != known:
            return True
        now = time.monotonic()
        if self._shrunk_at is None:
            self._shrunk_at = now
        return now - self._shrunk_at > _GONE_AFTER

    def _take(self, records: list[Message]) -> None:
        for record in records:
            error, offset, key = record.error(), record.offset(), record.key()
            if error is not None and error.code() not in _NO_FAILURE:
                raise KafkaException(error)
            if offset is None:
                continue
            if error is not None:
                # The end; between the last record and it lie only markers of transactions.
                self._next = max(self._next, offset)
                continue
            self._next = offset + 1
            name = (key or b"").decode("utf-8", "surrogateescape")
            value = record.value()
            if value is None:
                self._read.pop(name, None)
            else:
                self._read[name] = value

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._handles.close_consumer(consumer)

    def _forget(self) -> None:
        """Drops what was read: the topic is no longer there, or another one."""
        self._drop_consumer()
        self._values, self._read, self._next, self._known = {}, {}, 0, 0
        self._topic_id, self._shrunk_at = "", None


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)


def _give_up(state: RetryCallState) -> None:
    lost = state.outcome.exception() if state.outcome is not None else None
    if isinstance(lost, _Lost):
        raise lost.cause


def _settings_text() -> str:
    return ", ".join(f"{name}={value}" for name, value in CATALOG_SETTINGS.items())


def unreadable(key: str, why: str) -> FailedPrecondition:
    """Returns the error for a record that this version can't read."""
    return FailedPrecondition(
        f"the catalog's record {key!r} can't be read ({why}): it was written by a newer version or damaged; "
        "upgrade kafka_pubsub, or repair the record"
    )
