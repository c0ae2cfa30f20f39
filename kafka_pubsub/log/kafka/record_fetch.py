"""Reads single records again, by a consumer that belongs to no group.

Theory: all partitions that were ever asked for stay assigned and paused. For a fetch some are resumed, a seek of each
sets the offset, and the records that come are searched. A seek costs 2 to 4 ms, an assignment 20 to 100, so offsets
near each other are read in one go and only far ones are sought.

Rules
1. Records come in the log's order, so an offset that was passed and not seen has no record. The last stable offset
   counts as seen; beyond it nothing is known.
2. A position that is no longer stored is answered with the log's first offset (`earliest`). One beyond the log's end
   would be, too: a record below the offset that was sought, where the log lost no tail, ends the fetch.
3. Between two fetches nothing is fetched: memory holds no more than one answer.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.bounded_calls import explain
from kafka_pubsub.log.kafka.client_factory import ClientFactory, Trouble
from kafka_pubsub.log.kafka.configuration import ConfigValue
from kafka_pubsub.log.kafka.errors import TRANSIENT
from kafka_pubsub.log.kafka.rights import Doing, on_topics
from kafka_pubsub.log.kafka.tails import find_lost_tails
from kafka_pubsub.log.ports import RecordFetch
from kafka_pubsub.model import Fetched, LogEnd, StoredRecord, TopicPartition

__all__ = ["KafkaRecordFetch"]

_DEFAULTS: Mapping[str, ConfigValue] = {
    # Milliseconds. When the queue is full a partition waits this long before it fetches again.
    "fetch.queue.backoff.ms": 5,
    # Kilobytes of records that librdkafka reads ahead, on top of what a caller asks for.
    "queued.max.messages.kbytes": 4_096,
    # Milliseconds. Waits occur only at the end of a log, which should be reported soon.
    "fetch.wait.max.ms": 10,
    # Bytes of one answer; a few hundred neighbours of the record that was sought, usually not wanted.
    "fetch.message.max.bytes": 256 * 1024,
    # Bytes of one answer for many partitions.
    "fetch.max.bytes": 8 * 1024 * 1024,
}

_RULES: Mapping[str, ConfigValue] = {
    # librdkafka needs a group; it is never joined, because partitions are assigned by hand.
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

#: Seconds between two checks for Ctrl-C while waiting.
_SLICE = 0.1


class KafkaRecordFetch(RecordFetch):
    """A `RecordFetch` over librdkafka."""

    def __init__(self, handles: ClientFactory, admin: KafkaAdmin) -> None:
        self._handles = handles
        self._admin = admin
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
        """Returns the records at the offsets; see the port."""
        return self.fetch_all({partition: offsets}, max_bytes, timeout)[partition]

    def fetch_all(
        self, wanted: Mapping[TopicPartition, Sequence[int]], max_bytes: int, timeout: float
    ) -> Mapping[TopicPartition, Fetched]:
        """Returns the records of many partitions at once."""
        searches = {place: _Search(offsets, max_bytes) for place, offsets in wanted.items()}
        with self._lock:
            consumer = self._ready()
            end = time.monotonic() + timeout
            try:
                while (left := _unfinished(searches)) and time.monotonic() < end:
                    self._run(consumer, left, end)
            except KafkaException as failure:
                self._drop()
                topics = {place.topic for place in wanted}
                doing = Doing(f"read again in {', '.join(sorted(topics))}", *on_topics("READ", *topics))
                raise explain(failure, doing, self._handles.address, self._trouble) from None
        return {place: search.found() for place, search in searches.items()}

    def lost_tails(
        self, read: Mapping[TopicPartition, LogEnd], timeout: float
    ) -> Mapping[TopicPartition, int]:
        """Returns the logs that lost records that were read, each with the first lost offset."""
        self._handles.check()
        return find_lost_tails(self._handles, self._admin.log_ends(list(read)), read, timeout)

    def close(self) -> None:
        """Closes the consumer."""
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

    def _go_to(self, consumer: Consumer, places: Mapping[TopicPartition, KafkaPartition], end: float) -> None:
        """Has the consumer read these partitions from these offsets on."""
        known = [each for place, each in places.items() if place in self._assigned]
        fresh = [each for place, each in places.items() if place not in self._assigned]
        if known:
            consumer.resume(known)
            for each in known:
                consumer.seek(each)
        if fresh:
            # A partition of a topic that the consumer has never heard of is looked for once a second only.
            for name in {each.topic for each in fresh}:
                consumer.list_topics(name, max(end - time.monotonic(), _SLICE))
            consumer.incremental_assign(fresh)
            self._assigned.update(places)

    def _run(self, consumer: Consumer, searches: Mapping[TopicPartition, _Search], end: float) -> None:
        """Reads each partition from its lowest wanted offset on, as long as the next one is near."""
        for search in searches.values():
            search.begin()
        places = {place: KafkaPartition(*place, search.start) for place, search in searches.items()}
        self._go_to(consumer, places, end)
        running = dict(searches)
        suspicious = time.monotonic() + _SILENCE
        try:
            while running and (now := time.monotonic()) < end:
                records = consumer.consume(_BATCH, 0) or consumer.consume(1, min(_SLICE, end - now))
                for record in records:
                    _look(record, running)
                through = [place for place, search in running.items() if not search.running]
                for place in through:
                    del running[place]
                if through and running:
                    consumer.pause([places[place] for place in through])
                if not records and now > suspicious:
                    _check_there(consumer, running, end - now)
                    suspicious = end
        finally:
            consumer.pause(list(places.values()))


def _unfinished(searches: Mapping[TopicPartition, _Search]) -> dict[TopicPartition, _Search]:
    return {place: search for place, search in searches.items() if not search.over}


def _check_there(consumer: Consumer, places: Iterable[TopicPartition], seconds: float) -> None:
    """Raises `UNKNOWN_TOPIC_OR_PART` if one doesn't exist, because a manual assignment never reports that."""
    for name in {place.topic for place in places}:
        topic = consumer.list_topics(name, max(seconds, _SLICE)).topics.get(name)
        numbers = {place.partition for place in places if place.topic == name}
        if topic is None or (topic.error is None and not numbers <= topic.partitions.keys()):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        if topic.error is not None and topic.error.code() not in TRANSIENT:
            raise KafkaException(topic.error)


def _look(record: Message, searches: Mapping[TopicPartition, _Search]) -> None:
    error, offset = record.error(), record.offset()
    topic, partition = record.topic(), record.partition()
    search = searches.get(TopicPartition(topic or "", -1 if partition is None else partition))
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        # An error of the whole topic comes with a partition's number that means nothing.
        if error.code() not in TRANSIENT and any(place.topic == topic for place in searches):
            raise KafkaException(error)
    elif search is None:
        return
    elif error is None:
        # Its header values are typed wider than they are.
        search.see(cast("StoredRecord", record), offset or 0)
    else:
        search.reach_end(offset or 0)


class _Search:
    """The wanted and the found offsets of one partition, and whether reading on is worth it."""

    def __init__(self, offsets: Sequence[int], max_bytes: int) -> None:
        self._wanted = sorted(set(offsets))
        # Wanted offsets before this one are done.
        self._next = 0
        self._room = max_bytes
        self._records: list[StoredRecord] = []
        self._missing: list[int] = []
        self.start = 0
        #: Whether the present run of reads goes on.
        self.running = False
        #: Whether the search is over.
        self.over = not self._wanted

    def begin(self) -> None:
        """Begins a run of reads at the lowest wanted offset."""
        self.start = self._wanted[self._next]
        self.running = True

    def see(self, record: StoredRecord, offset: int) -> None:
        """Takes a record that was read."""
        if not self.running:
            return
        if offset < self.start:
            # See rule 2: the wanted record isn't stored yet.
            self._stop()
            return
        self._pass(offset)
        if not self.over and self._wanted[self._next] == offset:
            self._take(record)
        if not self.over and self._wanted[self._next] - offset > _NEAR:
            self.running = False

    def reach_end(self, offset: int) -> None:
        """Takes the last stable offset: all records below it were read, and none above is visible yet."""
        if self.running:
            self._pass(offset)
            self._stop()

    def found(self) -> Fetched:
        """Returns the answer so far."""
        return Fetched(tuple(self._records), tuple(self._missing))

    def _take(self, record: StoredRecord) -> None:
        self._records.append(record)
        self._room -= len(record)
        self._next += 1
        if self._room <= 0 or self._next == len(self._wanted):
            self._stop()

    def _pass(self, offset: int) -> None:
        """Notes that wanted offsets below this one have no record."""
        upto = bisect.bisect_left(self._wanted, offset, lo=self._next)
        self._missing += self._wanted[self._next : upto]
        self._next = upto
        if upto == len(self._wanted):
            self._stop()

    def _stop(self) -> None:
        self.running, self.over = False, True
