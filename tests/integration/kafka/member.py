"""A member of a group for tests: reads on a thread of its own and writes down what it sees."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Producer

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.log.kafka.reader import KafkaLogReader
from kafka_pubsub.model import Committed, TopicPartition
from tests.support import commit

#: Seconds that anything may take that takes milliseconds.
PATIENCE = 45.0


def fill(bootstrap: str, topic: str, records: Mapping[int, int], size: int = 100) -> None:
    """Writes so many records into each partition; the value's end is the offset in an empty topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for partition, count in records.items():
        for number in range(count):
            producer.produce(topic, b"%0*d" % (size, number), partition=partition)
            producer.poll(0)
    assert producer.flush(PATIENCE) == 0


class Member:
    """Reads from the committed position, or from 0, and commits what it has read when it is told to go."""

    def __init__(self, backend: KafkaBackend, group: str, topic: str, *, pace: float = 0.0) -> None:
        self.reader: KafkaLogReader = backend.reader(group, f"member-of-{group}")
        self.pace = pace
        # Partition -> where the next record must be, for what is ours now.
        self.next: dict[TopicPartition, int] = {}
        self.seen: list[tuple[int, int]] = []
        self.events: list[str] = []
        self.failures: list[tuple[TopicPartition | None, PubSubError, bool]] = []
        self.wrong: list[str] = []
        self.leave_out: Callable[[TopicPartition], bool] = lambda partition: False
        self.raised: BaseException | None = None
        self._stop = threading.Event()
        self.reader.subscribe([topic], self)
        self.thread = threading.Thread(target=self._run)

    def start(self) -> Member:
        """Begins to read."""
        self.thread.start()
        return self

    def stop(self) -> None:
        """Closes the reader, on its own thread."""
        self._stop.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """From the committed position; some left out."""
        self.events.append("assigned")
        committed = self.reader.committed(partitions)
        starts = {each: committed[each].offset or 0 for each in partitions if not self.leave_out(each)}
        self.next.update(starts)
        return starts

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commits, then forgets."""
        self.events.append("revoked")
        mine = {each: Committed(self.next[each], "") for each in partitions if each in self.next}
        for each, answer in commit(self.reader, mine).items():
            if answer is not None:
                self.events.append(f"commit of {each}: {answer}")
        for each in partitions:
            self.next.pop(each, None)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Forgets."""
        self.events.append("lost")
        for each in partitions:
            self.next.pop(each, None)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """Writes it down."""
        self.failures.append((partition, error, fatal))

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._take()
            self.reader.close()
        except BaseException as raised:
            self.raised = raised

    def _take(self) -> None:
        for record in self.reader.read(20, 0.05):
            where = TopicPartition(record.topic() or "", record.partition() or 0)
            offset = record.offset()
            if self.next.get(where) != offset:
                self.wrong.append(f"{where} {offset}, not {self.next.get(where)}")
            assert offset is not None
            self.next[where] = offset + 1
            self.seen.append((where.partition, offset))
        self._stop.wait(self.pace)
