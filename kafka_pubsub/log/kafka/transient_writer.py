"""A log writer for transient messages: the leader's answer counts, and a message without an answer is given up.

Rules
1. One request to a broker at a time, so that a request that is sent again doesn't overtake a later one.
2. A message has `ANSWER_S` from its append to its answer, and librdkafka looks once a second for those that are late.
   So an outage fails messages, and never lets them queue up. A failed message may be in the topic, and fails no other.
3. The first call for a topic's channel asks for the topic, so that its first message finds a connection.
4. After messages were given up, a producer that finds no broker, although a new client does, is replaced, once in
   `LOST_S`: now and then librdkafka never finds its brokers again (decisions 046, 073).
5. A waiting `poll` or `flush` stays below 0.2 s, as in `writer.py`.
"""

from __future__ import annotations

import functools
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
from kafka_pubsub.log.kafka.errors import error_of, translate
from kafka_pubsub.log.kafka.rights import looking_at, publishing_to
from kafka_pubsub.log.ports import LogWriter
from kafka_pubsub.log.transient import ANSWER_S, given_up
from kafka_pubsub.model import Header, StoredRecord

__all__ = ["KafkaTransientWriter"]

_log = logging.getLogger("kafka_pubsub.publish")

Report = Callable[[object, StoredRecord], None]

_ANY_PARTITION: Final = -1
_NOW: Final = 0
# Seconds; see rule 5.
_LONGEST_WAIT_S: Final = 0.1
# Seconds for a request about a topic; a broker that is there answers in milliseconds.
_METADATA_S: Final = 2.0
# Seconds; a call of produce takes microseconds, and its message is given up in one or two seconds.
_RETIRE_S: Final = 10.0
# Seconds to wait at the close for the reports of the messages that are given up.
_DRAIN_S: Final = 5.0


def transient_settings(batching: Batching, max_batch_bytes: int) -> Settings:
    """Returns librdkafka's settings."""
    rules: dict[str, ConfigValue] = {
        "client.id": "kafka_pubsub-transient",
        "enable.idempotence": False,
        "acks": 1,
        "max.in.flight": 1,
        "message.timeout.ms": round(ANSWER_S * 1000),
    }
    # A message must not wait for others until it is given up.
    return join_settings(batching, max_batch_bytes, ANSWER_S / 2, rules)


class _Channel:
    """A direct call of the producer for a topic, until the close."""

    __slots__ = ("quick",)

    def __init__(self, quick: Callable[..., None]) -> None:
        self.quick: Callable[..., None] | None = quick


class KafkaTransientWriter(LogWriter):
    """A transient `LogWriter` over librdkafka. Any thread may append; reports run where `poll` or `flush` is called."""

    def __init__(self, handles: ClientFactory, batching: Batching, max_batch_bytes: int) -> None:
        self._handles = handles
        self._settings = transient_settings(batching, max_batch_bytes)
        self._producer: Producer = handles.producer(*self._settings)
        self._produce: Callable[..., None] = self._producer.produce
        # Replaced producers, and when they may be freed: a call of another thread may still be inside one.
        self._replaced: list[tuple[float, Producer]] = []
        # Whether a message was given up since the last look at the brokers, and when the next one is due.
        self._doubtful = False
        self._look_at = time.monotonic() + LOST_S
        self._lock = threading.Lock()
        self._closed = False
        self._channels: dict[str, _Channel] = {}

    def channel(self, topic: str) -> _Channel:
        """Returns the channel of a topic, always the same object; the first call asks for the topic."""
        found = self._channels.get(topic)
        if found is not None:
            return found
        try:
            self._ask_count(topic)
        except KafkaException as failure:
            # Its messages are tried nevertheless, and given up in time.
            _log.debug("asking for topic %r: %s", topic, error_of(failure).str())
        with self._lock:
            return self._channels.setdefault(topic, _Channel(self._produce))

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        on_delivery: Report,
        partition: int = _ANY_PARTITION,
    ) -> None:
        """Queues a record."""
        try:
            self._produce(topic, value, key, partition, on_delivery, None, _NOW, headers)
        except KafkaException as failure:
            raise self.explain(failure) from None

    def _ask_count(self, topic: str) -> int:
        found = self._producer.list_topics(topic, timeout=_METADATA_S).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def poll(self, timeout: float) -> int:
        """Runs reports; waits up to `timeout` seconds (0.1 at most) for the first."""
        served = self._serve(lambda: self._producer.poll(min(timeout, _LONGEST_WAIT_S)))
        if self._replaced:
            served += self._serve_replaced()
        self._watch()
        return served

    def flush(self, timeout: float) -> int:
        """Sends without waiting for full batches, for `timeout` seconds (0.1 at most); returns how many are left."""
        self._serve(lambda: self._producer.flush(min(timeout, _LONGEST_WAIT_S)))
        if self._replaced:
            self._serve_replaced()
        self._watch()
        return len(self._producer) + sum(len(each) for _, each in self._replaced)

    def _watch(self) -> None:
        if self._doubtful and time.monotonic() >= self._look_at and not self._closed:
            self._doubtful, self._look_at = False, time.monotonic() + LOST_S
            look_for_brokers(self._producer.list_topics, self._handles, self._replace)

    def _serve_replaced(self) -> int:
        served = 0
        for _, producer in self._replaced:
            served += self._serve(functools.partial(producer.poll, 0))
        with self._lock:
            now = time.monotonic()
            over = [producer for free_at, producer in self._replaced if free_at <= now]
            self._replaced = [(free_at, each) for free_at, each in self._replaced if free_at > now]
        for producer in over:
            self._handles.close_producer(producer)
        return served

    def _replace(self) -> None:
        fresh: Producer = self._handles.producer(*self._settings)
        with self._lock:
            if not self._closed:
                self._replaced.append((time.monotonic() + _RETIRE_S, self._producer))
                self._producer, self._produce = fresh, fresh.produce
                for channel in self._channels.values():
                    channel.quick = fresh.produce
                return
        self._handles.close_producer(fresh)

    def _serve(self, call: Callable[[], int]) -> int:
        try:
            return call()
        except KafkaException as failure:
            _log.error("serving delivery reports: %s", translate(failure, "publish").message)
            return 0

    def relearn(self, topic: str) -> int:
        """Requests the topic's number of partitions, and spreads keys over that number from now on."""
        try:
            return self._ask_count(topic)
        except KafkaException as failure:
            raise translate(failure, looking_at([topic], "partitions of topic {}")) from None

    def explain(self, error: object, topic: str = "") -> PubSubError:
        """Translates a report's error."""
        if isinstance(error, KafkaException):
            error = error_of(error)
        if not isinstance(error, KafkaError):
            return error if isinstance(error, PubSubError) else PublishError(f"publish: {error}")
        if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._doubtful = True
            return given_up()
        meaning = translate(error, publishing_to(topic))
        return PublishError(f"{meaning.message}; the message may be in the topic or not", code=meaning.code)

    def close(self) -> None:
        """Gives up messages that weren't stored by now, and frees the producer."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for channel in self._channels.values():
                channel.quick = None
        end = time.monotonic() + _DRAIN_S
        producers = [self._producer, *(each for _, each in self._replaced)]
        for producer in producers:
            self._serve(functools.partial(_purge, producer))
        while self.flush(_LONGEST_WAIT_S) and time.monotonic() < end:
            pass
        for producer in producers:
            self._handles.close_producer(producer)


def _purge(producer: Producer) -> int:
    producer.purge(in_queue=True, in_flight=True, blocking=False)
    return 0
