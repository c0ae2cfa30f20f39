"""Reads single records again, by a consumer that belongs to no group.

Theory: all partitions that were ever asked for stay assigned and paused. For a fetch one is resumed, a seek says
where, and what comes is looked through. A seek costs 2 to 4 ms, an assignment 20 to 100 (tried), so offsets near
each other are read in one go and only far ones are sought.

Rules
1. What lies between two offsets in the log's own order was looked at: an offset that was passed and not seen has no
   record. The end of what a committed reader may see counts as seen; beyond it nothing is said.
2. A position that is no longer stored is answered with the log's first offset (`earliest`). One beyond the log's end
   would be, too: a record below what was sought, with nothing cut off, ends the fetch.
3. Between two fetches nothing is fetched: memory holds no more than one answer.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Mapping, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.kafka.calls import explain
from kafka_pubsub.kafka.configuration import ConfigValue
from kafka_pubsub.kafka.errors import TRANSIENT
from kafka_pubsub.kafka.handles import Handles, Trouble
from kafka_pubsub.kafka.tails import find_lost_tails
from kafka_pubsub.model import Fetched, LogEnd, StoredRecord, TopicPartition

__all__ = ["KafkaRecordFetch"]

_DEFAULTS: Mapping[str, ConfigValue] = {
    # Milliseconds. When the queue is full a partition waits this long before it fetches again.
    "fetch.queue.backoff.ms": 5,
    # Kilobytes of records that librdkafka reads ahead, on top of what a caller asks for.
    "queued.max.messages.kbytes": 4_096,
    # Milliseconds. We only wait at the end of a log, and want to know that we are there.
    "fetch.wait.max.ms": 10,
    # Bytes of one answer; a few hundred neighbours of the record that was sought, usually not wanted.
    "fetch.message.max.bytes": 256 * 1024,
}

_RULES: Mapping[str, ConfigValue] = {
    # Needed by librdkafka, never joined: partitions are assigned by hand.
    "group.id": "_kafka_pubsub.record-fetch",
    "client.id": "kafka_pubsub-record-fetch",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
}

#: Offsets that are read over rather than sought past: 2 ms at 300,000 records a second.
_NEAR = 500

#: Records taken from librdkafka at once.
_BATCH = 500

#: Seconds without any answer after which the topic may be gone.
_SILENCE = 1.0

#: Seconds between two looks for Ctrl-C while waiting.
_SLICE = 0.1


class KafkaRecordFetch:
    """A `RecordFetch`."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._trouble = Trouble()
        # Held over a fetch, so that closing waits for it.
        self._lock = threading.Lock()
        self._closed = False
        # None until the first fetch.
        self._consumer: Consumer | None = None
        self._assigned: set[TopicPartition] = set()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def fetch(
        self, partition: TopicPartition, offsets: Sequence[int], max_bytes: int, timeout: float
    ) -> Fetched:
        """The records at the offsets; see the port."""
        if not offsets:
            return Fetched((), ())
        search = _Search(offsets, max_bytes)
        with self._lock:
            consumer = self._ready()
            end = time.monotonic() + timeout
            try:
                while not search.over and time.monotonic() < end:
                    self._run(consumer, partition, search, end)
            except KafkaException as failure:
                self._drop()
                doing = f"read again in {partition.topic}[{partition.partition}]"
                raise explain(failure, doing, self._handles.address, self._trouble) from None
        return search.found()

    def lost_tails(
        self, read: Mapping[TopicPartition, LogEnd], timeout: float
    ) -> Mapping[TopicPartition, int]:
        """The logs that lost something of what was read, and from where on."""
        self._handles.check()
        return find_lost_tails(self._handles, read, timeout)

    def close(self) -> None:
        """Lets go of the consumer."""
        with self._lock:
            self._closed = True
            self._drop()

    def _ready(self) -> Consumer:
        self._handles.check()
        if self._closed:
            raise FailedPrecondition("the reader of single records is closed")
        if self._consumer is None:
            self._trouble.clear()
            self._consumer = self._handles.consumer(_DEFAULTS, _RULES, self._trouble.note)
        return self._consumer

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._assigned.clear()
        if consumer is not None:
            self._handles.close_consumer(consumer)

    def _run(self, consumer: Consumer, partition: TopicPartition, search: _Search, end: float) -> None:
        """From the lowest wanted offset on, as long as the next one is near."""
        search.begin()
        place = KafkaPartition(*partition, search.start)
        if partition in self._assigned:
            consumer.resume([place])
            consumer.seek(place)
        else:
            consumer.incremental_assign([place])
            self._assigned.add(partition)
        suspicious = time.monotonic() + _SILENCE
        try:
            while search.running and (now := time.monotonic()) < end:
                records = consumer.consume(_BATCH, 0) or consumer.consume(1, min(_SLICE, end - now))
                for record in records:
                    _look(record, partition, search)
                if not records and now > suspicious:
                    _check_there(consumer, partition, end - now)
                    suspicious = end
        finally:
            consumer.pause([place])


def _check_there(consumer: Consumer, partition: TopicPartition, seconds: float) -> None:
    """`UNKNOWN_TOPIC_OR_PART` if it doesn't exist, which a partition that was assigned by hand never says."""
    topic = consumer.list_topics(partition.topic, max(seconds, _SLICE)).topics.get(partition.topic)
    if topic is None or (topic.error is None and partition.partition not in topic.partitions):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    if topic.error is not None and topic.error.code() not in TRANSIENT:
        raise KafkaException(topic.error)


def _look(record: Message, partition: TopicPartition, search: _Search) -> None:
    error, offset = record.error(), record.offset()
    if record.topic() != partition.topic:
        return
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        # What concerns the whole topic comes with the number of a partition that means nothing.
        if error.code() not in TRANSIENT:
            raise KafkaException(error)
    elif record.partition() != partition.partition:
        return
    elif error is None:
        # Its header values are typed wider than they are.
        search.see(cast("StoredRecord", record), offset or 0)
    else:
        search.reach_end(offset or 0)


class _Search:
    """What is wanted, what was found, and whether reading on is worth it."""

    def __init__(self, offsets: Sequence[int], max_bytes: int) -> None:
        self._wanted = sorted(set(offsets))
        # Wanted offsets before this one are done.
        self._next = 0
        self._room = max_bytes
        self._records: list[StoredRecord] = []
        self._missing: list[int] = []
        self.start = 0
        #: Whether the run that was begun goes on.
        self.running = False
        #: Whether nothing more can be found, or may be.
        self.over = False

    def begin(self) -> None:
        """A run from the lowest wanted offset."""
        self.start = self._wanted[self._next]
        self.running = True

    def see(self, record: StoredRecord, offset: int) -> None:
        """A record came."""
        if not self.running:
            return
        if offset < self.start:
            # See rule 2: what was sought isn't there yet.
            self._stop()
            return
        self._pass(offset)
        if not self.over and self._wanted[self._next] == offset:
            self._take(record)
        if not self.over and self._wanted[self._next] - offset > _NEAR:
            self.running = False

    def reach_end(self, offset: int) -> None:
        """All below the offset were shown; what is above isn't visible yet."""
        if self.running:
            self._pass(offset)
            self._stop()

    def found(self) -> Fetched:
        """The answer as it stands."""
        return Fetched(tuple(self._records), tuple(self._missing))

    def _take(self, record: StoredRecord) -> None:
        self._records.append(record)
        self._room -= len(record)
        self._next += 1
        if self._room <= 0 or self._next == len(self._wanted):
            self._stop()

    def _pass(self, offset: int) -> None:
        """Whatever was wanted below it has no record."""
        upto = bisect.bisect_left(self._wanted, offset, lo=self._next)
        self._missing += self._wanted[self._next : upto]
        self._next = upto
        if upto == len(self._wanted):
            self._stop()

    def _stop(self) -> None:
        self.running, self.over = False, True
