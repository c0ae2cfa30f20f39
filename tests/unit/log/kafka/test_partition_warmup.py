"""Nothing is opened for publishers, who take no lock there, before all that waited has been sent."""

from __future__ import annotations

from kafka_pubsub.log.kafka.partition_warmup import Held, PartitionWarmup, Report
from kafka_pubsub.log.partitioner import partition_of
from tests.support import FakeBody

PARTITIONS = 2


class Producer:
    """Keeps what was sent, and notes what publishers could have done at that moment."""

    def __init__(self) -> None:
        self.sent: list[tuple[Held, Report]] = []
        self.opened_early: list[bytes] = []
        self.open_to_all = False
        self.waits: list[bytes] = []
        self.warmup = PartitionWarmup(self.send, lambda topic: PARTITIONS, self.all_open)

    def all_open(self, topic: str, are: bool) -> None:
        self.open_to_all = are

    def send(self, message: Held, report: Report) -> None:
        body = message.value() or b""
        later = [each for each in self.waits if each != body]
        keys = self.warmup.open.get("t", set())
        if later and (self.open_to_all or keys is None or message.key() in keys):
            self.opened_early.append(body)
        self.waits = later
        self.sent.append((message, report))

    def admit(self, key: bytes, body: bytes) -> None:
        self.waits.append(body)
        self.warmup.admit(Held("t", body, key, None, lambda error, record: None))

    def report_all(self) -> None:
        sent, self.sent = self.sent, []
        for message, report in sent:
            number = partition_of(message.key(), PARTITIONS)
            report(None, _At(number))
        self.warmup.learn()


class _At(FakeBody):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def partition(self) -> int:
        return self._number


def test_a_key_is_opened_only_after_all_that_waited_of_it_was_sent() -> None:
    producer = Producer()
    for number in range(10):
        producer.admit(b"key", b"%d" % number)
    order = []
    while producer.waits or producer.sent:
        order += [message.value() for message, _ in producer.sent]
        producer.report_all()
    assert order == [b"%d" % number for number in range(10)]
    assert producer.opened_early == []


def test_a_topic_is_opened_only_after_all_that_waited_was_sent() -> None:
    producer = Producer()
    keys = [b"key-%d" % number for number in range(20)]
    for number, key in enumerate(keys * 5):
        producer.admit(key, b"%d" % number)
    while producer.waits or producer.sent:
        producer.report_all()
    assert producer.open_to_all
    assert producer.opened_early == []
