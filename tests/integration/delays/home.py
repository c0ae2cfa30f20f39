"""What the tests of routers share: messages with many delays, a reader of their topic, and what must hold of both."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.model import ReadFrom, StoredRecord, TopicPartition
from tests.support import until

__all__ = ["Home", "Published", "publish"]

#: Seconds: clocks are read to the millisecond.
_CLOCK = 0.002
#: Seconds after the last message in which a second copy would come.
_AFTERWARDS = 0.5


class Published(NamedTuple):
    """Messages: by id the delay and the key. `at` is when the first was published."""

    at: float
    by_id: Mapping[str, tuple[float, str]]


def publish(topic: Topic, count: int, shortest: float = 0.05) -> Published:
    """Publishes with delays that differ by up to 6 seconds."""
    at, sent = time.time(), []
    for n in range(count):
        delay, key = (n * 37 % 60) / 10 + shortest, f"k{n % 5}"
        sent.append((topic.publish(b"%d" % n, ordering_key=key, delay=delay), delay, key))
    topic.flush(30)
    return Published(at, {future.result(): (delay, key) for future, delay, key in sent})


class Home:
    """Reads a topic as any consumer of committed records does."""

    def __init__(self, ps: PubSub, topic: Topic) -> None:
        self._backend, self._topic = ps._cluster.backend, topic.name
        #: Each record, and when it was read.
        self.records: list[tuple[StoredRecord, float]] = []
        self._reader = self._backend.reader(f"read-{topic.name}", "home")
        self._reader.subscribe([self._topic], self)

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None: ...
    def lost(self, partitions: Sequence[TopicPartition]) -> None: ...
    def failed(self, partition: TopicPartition | None, error: Exception, fatal: bool) -> None: ...

    def count(self) -> int:
        found = self._reader.read(1000, 0.2)
        self.records += [(record, time.time()) for record in found]
        return len(self.records)

    def receive(self, *published: Published) -> None:
        """Waits until all these messages are home, and closes; then judges.

        Each came once, a key's in the order of their delivery, none before its time by the wall clock of this machine.
        """
        sent = {message_id: (each.at, *said) for each in published for message_id, said in each.by_id.items()}
        until(lambda: self.count() >= len(sent))
        end = time.monotonic() + _AFTERWARDS
        while time.monotonic() < end:
            self.count()
        self._reader.close()
        self._judge(sent)

    def _judge(self, sent: Mapping[str, tuple[float, float, str]]) -> None:
        ids = [(dict(record.headers() or ())["ps-id"] or b"").decode() for record, _ in self.records]
        assert len(ids) == len(set(ids)), "doubled"
        assert set(ids) == set(sent), "lost"
        by_key: dict[str, list[int]] = defaultdict(list)
        for (record, read_at), message_id in zip(self.records, ids, strict=True):
            at, delay, key = sent[message_id]
            assert record.key() == key.encode()
            delivered = record.timestamp()[1]
            early = at + delay - min(delivered / 1000, read_at)
            assert early <= _CLOCK, f"{message_id} with a delay of {delay} s came {early:.3f} s early"
            by_key[key].append(delivered)
        assert all(times == sorted(times) for times in by_key.values()), "out of order"
