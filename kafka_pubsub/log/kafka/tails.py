"""Finds logs that have lost their last records, with the only leader or the disk that had them.

Theory. A record has the epoch of the leader that took it. An offset with the epoch of the record before it identifies
the log that was read: the leader reports to a consumer that begins there whether its own log is that one (KIP-320).

Rules
1. An offset below the log's start isn't checked: retention deletes there, so it proves nothing.
2. Without an epoch only the end of the log can show a loss: a log that has grown again seems to be whole.
3. While the leader that was read leads a log, the log loses nothing: one request shows that for all logs.
4. Where a log has lost something, trying ever lower offsets finds the first one that is lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.log.kafka.bounded_calls import explain
from kafka_pubsub.log.kafka.client_factory import ClientFactory, Trouble
from kafka_pubsub.log.kafka.configuration import ConfigValue
from kafka_pubsub.log.kafka.conversions import kafka_partition, plain, where_of
from kafka_pubsub.log.kafka.errors import PARTITION_FATAL, TRANSIENT
from kafka_pubsub.log.kafka.rights import Doing, on_topics
from kafka_pubsub.model import LogEnd, TopicPartition

__all__ = ["find_lost_tails"]

_DEFAULTS: Mapping[str, ConfigValue] = {
    # Milliseconds. At the end of a log the only answer is that end.
    "fetch.wait.max.ms": 10,
    # Bytes. The records that come aren't used.
    "fetch.message.max.bytes": 1024,
}

_RULES: Mapping[str, ConfigValue] = {
    # librdkafka needs a group; it is never joined, because partitions are assigned by hand.
    "group.id": "_kafka_pubsub.log-ends",
    "client.id": "kafka_pubsub-log-ends",
    # A transaction that lost its end stays open: a reader of committed records would wait before it.
    "isolation.level": "read_uncommitted",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}

#: Events to ignore: those of partitions that have answered already, transient errors, and a refusal to join the
#: group, which is never joined.
_PASSING = TRANSIENT | PARTITION_FATAL | {KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED}

#: Seconds between two checks for Ctrl-C while waiting.
_SLICE = 0.1


def find_lost_tails(
    handles: ClientFactory,
    ends: Mapping[TopicPartition, LogEnd],
    read: Mapping[TopicPartition, LogEnd],
    timeout: float,
) -> Mapping[TopicPartition, int]:
    """Returns the logs that have lost records that were read, each with the first lost offset.

    `ends`: where the logs end now.
    """
    unknown = {place: ends[place].offset for place, end in read.items() if end.epoch is None}
    lost = {place: now for place, now in unknown.items() if now < read[place].offset}
    others = {
        place: end
        for place, end in read.items()
        if place not in unknown and (ends[place].epoch != end.epoch or ends[place].offset < end.offset)
    }
    return {**lost, **_asked(handles, others, timeout)} if others else lost


def _asked(
    handles: ClientFactory, read: Mapping[TopicPartition, LogEnd], timeout: float
) -> Mapping[TopicPartition, int]:
    """Returns what the leaders report for these logs."""
    trouble = Trouble()
    consumer = handles.consumer(_DEFAULTS, _RULES, trouble.note)
    try:
        return _Search(consumer, time.monotonic() + timeout).find(read)
    except KafkaException as failure:
        topics = {place.topic for place in read}
        doing = Doing(f"check the ends of {', '.join(sorted(topics))}", *on_topics("READ", *topics))
        raise explain(failure, doing, handles.address, trouble) from None
    finally:
        handles.close_consumer(consumer)


class _Search:
    def __init__(self, consumer: Consumer, end: float) -> None:
        self._consumer = consumer
        self._end = end

    def find(self, read: Mapping[TopicPartition, LogEnd]) -> Mapping[TopicPartition, int]:
        """Searches all partitions together, so that more partitions don't need more rounds of requests."""
        lost = self._refused(read)
        starts = {place: self._start(place) for place in lost}
        # For each: the highest offset that is known to be stored, and the lowest that is known to be lost.
        known = {
            place: (starts[place], read[place].offset) for place in lost if starts[place] < read[place].offset
        }
        while open_ := {place: sum(each) // 2 for place, each in known.items() if each[1] - each[0] > 1}:
            refused = self._refused({place: LogEnd(at, read[place].epoch) for place, at in open_.items()})
            for place, at in open_.items():
                low, high = known[place]
                known[place] = (low, at) if place in refused else (at, high)
        return {place: low for place, (low, _) in known.items()}

    def _start(self, place: TopicPartition) -> int:
        low, _ = self._consumer.get_watermark_offsets(kafka_partition(place, 0), self._left())
        return low

    def _refused(self, ends: Mapping[TopicPartition, LogEnd]) -> set[TopicPartition]:
        """Returns the partitions whose leader has another log than the one that was read."""
        begin = [kafka_partition(place, end) for place, end in ends.items()]
        self._consumer.assign(begin)
        self._consumer.resume(begin)  # librdkafka remembers which were paused before
        refused = self._answers(set(ends))
        there = [each for each in begin if TopicPartition(each.topic, each.partition) not in refused]
        # Where it knows the leader already, only a seek makes librdkafka ask (2.16, tried).
        for each in there:
            self._consumer.seek(each)
        self._consumer.resume(there)
        return refused | self._answers(set(plain(there)))

    def _answers(self, waiting: set[TopicPartition]) -> set[TopicPartition]:
        """Waits for an event of each; returns the partitions that can't be read from their offsets."""
        refused: set[TopicPartition] = set()
        while waiting:
            for record in self._consumer.consume(len(waiting), min(_SLICE, self._left())):
                error, place = record.error(), where_of(record)
                code = KafkaError._PARTITION_EOF if error is None else error.code()
                if place not in waiting:
                    place = None
                elif code in PARTITION_FATAL:
                    refused.add(place)
                if place is not None and (code in PARTITION_FATAL or code == KafkaError._PARTITION_EOF):
                    waiting.discard(place)
                    self._consumer.pause([kafka_partition(place, 0)])
                elif error is not None and code not in _PASSING:
                    raise KafkaException(error)
        return refused

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("the ends of logs couldn't be checked in time")
        return left
