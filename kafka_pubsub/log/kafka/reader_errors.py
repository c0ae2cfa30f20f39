"""What goes wrong while a reader reads, as it is reported to its listener.

Rules
1. The same error is reported once a second, not 20 times.
2. One broker of several may close a connection at any time; only with none left is it reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Sequence

from confluent_kafka import KafkaError, Message

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.kafka.client_factory import Trouble
from kafka_pubsub.log.kafka.conversions import name_of, say_nothing, where_of
from kafka_pubsub.log.kafka.errors import CONNECTION, PARTITION_FATAL, READER_FATAL, translate, unreachable
from kafka_pubsub.log.kafka.rights import Doing, Right, on_topics
from kafka_pubsub.model import TopicPartition

__all__ = ["ReaderErrors", "Throttle"]


class Throttle:
    """Decides for each error whether it is time to report it again."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` must pass between two reports of the same error."""
        self._seconds, self._clock = seconds, clock
        # Error -> when it was last reported. Empty: none was.
        self._reported: dict[Hashable, float] = {}

    def admit(self, trouble: Hashable, *, always: bool = False) -> bool:
        """Returns whether to report it now; with `always` in any case."""
        now, last = self._clock(), self._reported.get(trouble)
        if not always and last is not None and now - last < self._seconds:
            return False
        self._reported[trouble] = now
        return True


#: Seconds between two reports of the same error.
_REPORT_EVERY = 1.0


class ReaderErrors:
    """The errors of one reader; `tell` gets the partition or None, the error, and whether it is fatal."""

    def __init__(
        self, group: str, address: str, tell: Callable[[TopicPartition | None, PubSubError, bool], None]
    ) -> None:
        self._doing = Doing(f"group {group!r}", Right("READ", "group", group))
        self._address, self._tell = address, tell
        self._throttle = Throttle(_REPORT_EVERY)
        #: The last troubles with connections.
        self.trouble = Trouble()
        #: Whether no broker could be reached, by the last report.
        self.down = False

    def note(self, error: KafkaError) -> None:
        """Takes an error of librdkafka's client as a whole."""
        code = error.code()
        if error.fatal() or code in READER_FATAL:
            self._report(None, code, translate(error, self._doing), fatal=True)
            return
        if code not in CONNECTION:
            self._report(None, code, translate(error, self._doing), fatal=False)
            return
        self.trouble.note(error)
        self.down = self.down or code == KafkaError._ALL_BROKERS_DOWN
        if self.down or code == KafkaError._RESOLVE:
            last = self.trouble.last or error
            cause = unreachable(self._doing, self._address, last)
            self._report(None, KafkaError._ALL_BROKERS_DOWN, cause, fatal=False)

    def note_records(
        self,
        records: Sequence[Message],
        assigned: Collection[TopicPartition],
        ends: dict[TopicPartition, int | None],
    ) -> None:
        """Takes the errors among records; the ends of logs go to `ends`."""
        for record in records:
            error = record.error()
            if error is None or say_nothing([record], ends):
                continue  # an end is no error
            where = where_of(record)
            if where not in assigned:
                # An error of a whole topic comes with a partition's number that means nothing.
                where = None
            code = error.code()
            ends_it = code in READER_FATAL or (where is not None and code in PARTITION_FATAL)
            told = translate(error, self._reading(where, record.topic()))
            self._report(where, code, told, fatal=error.fatal() or ends_it)

    def _reading(self, where: TopicPartition | None, topic: str | None) -> Doing:
        if not topic:
            return self._doing
        text = f"read of topic {topic!r}" if where is None else f"read of {name_of(where)}"
        return Doing(text, *self._doing.needs, *on_topics("READ", topic))

    def _report(
        self, partition: TopicPartition | None, code: int, error: PubSubError, *, fatal: bool
    ) -> None:
        if self._throttle.admit((partition, code), always=fatal):
            self._tell(partition, error, fatal)
