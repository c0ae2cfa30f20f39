"""Makes sure that a partition has acknowledged a producer's message before keyed messages are pipelined to it.

Theory (tried on Kafka 4.3): a broker checks a producer's sequence numbers only once it knows the producer. Of the
first batches that a new producer pipelines to a partition the first may be refused and the second stored, with every
setting of librdkafka: a gap. Once one batch is acknowledged, everything behind a refused one is refused as well.

Rules
1. To a partition that hasn't acknowledged anything yet only one keyed message is sent; the others wait here, in the
   order of their appends. Its report sends or fails them; only then are keys opened (`open`, `all_open`), because
   messages of open keys take no lock and would overtake them.
2. The number of partitions is requested after the topic's first acknowledged message; until then the whole topic
   counts as one partition.
3. A broker forgets a producer that has sent nothing for a day (`producer.id.expiration.ms`), so after
   `PRIMED_FOR_S` everything begins anew; that costs a partition one round trip.
4. A message without a key has no order to lose and isn't held.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import Header, StoredRecord

__all__ = ["NOT_SENT", "PRIMED_FOR_S", "Held", "PartitionWarmup", "Report"]

#: Seconds; a twenty-fourth of the time after which a stock broker forgets a producer.
PRIMED_FOR_S = 3600.0

# Keys whose partition is remembered. Beyond that they are computed again: about 3 us each, and bounded memory.
_KNOWN_KEYS = 100_000

# Stands for the whole topic while its number of partitions is unknown.
_WHOLE_TOPIC = -1

Report = Callable[[object, StoredRecord], None]

#: The error of messages that waited behind a failed message.
NOT_SENT = "a message before this one failed, so this one wasn't sent; it isn't in the topic"


class Held:
    """A message that waits for its partition; also the record that its report gets if it is never sent."""

    __slots__ = ("_headers", "_key", "_topic", "_value", "report")

    def __init__(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        headers: Sequence[Header] | None,
        report: Report,
    ) -> None:
        self._topic, self._value, self._key, self._headers = topic, value, key, headers
        self.report = report

    def topic(self) -> str:
        """The topic that it was for."""
        return self._topic

    def partition(self) -> int | None:
        """None, because it isn't stored."""
        return None

    def offset(self) -> int | None:
        """None, because it isn't stored."""
        return None

    def key(self) -> bytes:
        """The ordering key's bytes."""
        return self._key

    def value(self) -> bytes | None:
        """The body."""
        return self._value

    def headers(self) -> list[Header] | None:
        """The attributes."""
        return None if self._headers is None else list(self._headers)

    def timestamp(self) -> tuple[int, int]:
        """Not available, because it isn't stored."""
        return (0, 0)

    def leader_epoch(self) -> None:
        """None, because it isn't stored."""

    def __len__(self) -> int:
        return len(self._value or b"")


class _Topic:
    """The state of a topic's partitions."""

    __slots__ = ("known", "partitions", "primed", "waiting")

    def __init__(self) -> None:
        self.partitions: int | None = None
        self.primed: set[int] = set()
        self.known: set[bytes] = set()
        # Partition -> the messages behind its first one. An entry exists while the first one is unanswered.
        self.waiting: dict[int, deque[Held]] = {}

    def place(self, key: bytes) -> int:
        return _WHOLE_TOPIC if self.partitions is None else partition_of(key, self.partitions)

    def complete(self) -> bool:
        return self.partitions is not None and len(self.primed) >= self.partitions


class PartitionWarmup:
    """The partitions that one producer may pipeline keyed messages to.

    `open` is for the writer's fast path: for each topic the keys that may go straight to the producer, or None
    when all may. `send` is the producer; `count` returns a topic's number of partitions, or None if that isn't known;
    `all_open` is called when all partitions of a topic become open, and when that ends.
    """

    def __init__(
        self,
        send: Callable[[Held, Report], None],
        count: Callable[[str], int | None],
        all_open: Callable[[str, bool], None],
    ) -> None:
        self.open: dict[str, set[bytes] | None] = {}
        self._send = send
        self._count = count
        self._all_open = all_open
        self._topics: dict[str, _Topic] = {}
        # Topics whose first message was acknowledged, and by which partition. Empty: nothing to ask for.
        self._to_learn: deque[tuple[str, int | None]] = deque()
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """The number of messages that wait here."""
        with self._lock:
            return sum(len(queue) for topic in self._topics.values() for queue in topic.waiting.values())

    def admit(self, message: Held) -> None:
        """Sends the message or keeps it back. If `send` raises, the error goes to the caller and nothing is kept."""
        with self._lock:
            self._admit(message)

    def _admit(self, message: Held) -> None:
        topic = self._topic(message.topic())
        place = topic.place(message.key())
        if place in topic.primed:
            self._send(message, message.report)
            if len(topic.known) >= _KNOWN_KEYS:
                topic.known.clear()
            topic.known.add(message.key())
        elif place in topic.waiting:
            topic.waiting[place].append(message)
        else:
            self._send(message, lambda error, record: self._first(message, place, error, record))
            topic.waiting[place] = deque()

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic()
            self.open[name] = topic.known
        return topic

    def _first(self, message: Held, place: int, error: object, record: StoredRecord) -> None:
        # The report first: it pauses the key, if it must, before the messages behind it are sent or failed.
        message.report(error, record)
        if error is None and place == _WHOLE_TOPIC:
            # A request can't be made inside a report: the Python client aborts the process.
            self._to_learn.append((message.topic(), record.partition()))
        else:
            self._release(message.topic(), place, error is None, record.partition(), None)

    def learn(self) -> None:
        """Requests the partitions of new topics; call it after reports have run."""
        while self._to_learn:
            name, acknowledged = self._to_learn.popleft()
            self._release(name, _WHOLE_TOPIC, True, acknowledged, self._count(name))

    def _release(
        self, name: str, place: int, stored: bool, acknowledged: int | None, partitions: int | None
    ) -> None:
        """Sends or fails the messages behind a partition's first one, which was reported."""
        failed: list[Held] = []
        with self._lock:
            topic = self._topics[name]
            behind = topic.waiting.pop(place)
            if stored:
                self._primed(topic, partitions, acknowledged)
            while behind:
                following = behind.popleft()
                if not stored or not self._follow(topic, following):
                    stored = False
                    failed.append(following)
            if topic.complete():
                self.open[name] = None
                self._all_open(name, True)
        for each in failed:
            each.report(NOT_SENT, each)

    @staticmethod
    def _primed(topic: _Topic, partitions: int | None, acknowledged: int | None) -> None:
        topic.partitions = partitions or topic.partitions
        if acknowledged is not None:
            topic.primed.add(acknowledged)

    def _follow(self, topic: _Topic, message: Held) -> bool:
        """Sends or keeps a message; False: it can't, and neither can those behind it."""
        try:
            if topic.place(message.key()) in topic.primed:
                self._send(message, message.report)  # and its key stays unknown: more of it may follow
            else:
                self._admit(message)
        except Exception:
            return False
        return True

    def expire(self) -> None:
        """Begins anew with every topic that has no waiting message."""
        with self._lock:
            for name, topic in self._topics.items():
                if not topic.waiting:
                    topic.primed.clear()
                    topic.known = set()
                    self.open[name] = topic.known
                    self._all_open(name, False)

    def forget(self, name: str) -> None:
        """Begins anew with a topic whose partitions have changed; no message of it may be waiting."""
        with self._lock:
            if self._topics.pop(name, None) is not None:
                self.open.pop(name, None)
                self._all_open(name, False)

    def fail_all(self) -> None:
        """Reports all messages that wait here as not sent."""
        with self._lock:
            queues = [queue for topic in self._topics.values() for queue in topic.waiting.values()]
            lost = [message for queue in queues for message in queue]
            for queue in queues:
                queue.clear()
        for message in lost:
            message.report(NOT_SENT, message)
