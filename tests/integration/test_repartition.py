"""I12 on a real Kafka: publishers and subscribers go on while a topic is given more partitions."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_pubsub import DeadlineExceeded, FailedPrecondition, Message, PubSub, RepartitionProgress
from kafka_pubsub.administration import manage_topics
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.publish import writer_pool
from kafka_pubsub.repartition.repartition import Repartitioner
from tests.support import until

SECONDS = 60
#: Seconds between two looks of a publisher here, and the fence that follows from them.
RENEW, FENCE = 0.5, 3.0
#: Messages that wait when the change begins: more than a second's work for the receivers.
BACKLOG = 2000


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_pool, "RENEW_S", RENEW)
    monkeypatch.setattr(writer_pool, "_RENEW_SOON_S", RENEW / 5)


@pytest.fixture
def ps(kafka: LocalKafka) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as opened:
        yield opened


@pytest.fixture
def change(kafka: LocalKafka) -> Iterator[Repartitioner]:
    """Changes layouts, as a process of its own."""
    backend = KafkaBackend(kafka.bootstrap)
    yield Repartitioner(backend, manage_topics(backend, may_create=True), may_create=True, fence=FENCE)
    backend.close()


@pytest.fixture
def name() -> str:
    return f"p-{uuid.uuid4().hex[:12]}"


class Publishing:
    """A process that publishes to keys of its own, and tries refused messages again."""

    def __init__(self, bootstrap: str, topic: str, keys: list[str]) -> None:
        self.sent: dict[str, list[Future[str]]] = {key: [] for key in keys}
        self.refused = 0
        #: Seconds between two messages.
        self.pause = 0.0005
        self.failed: list[BaseException] = []
        self._stopping = threading.Event()
        self._ps = PubSub(bootstrap)
        self._topic = self._ps.topic(topic)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            number = 0
            while not self._stopping.is_set():
                for key, sent in self.sent.items():
                    sent.append(self._publish(key, number))
                number += 1
        except BaseException as error:
            self.failed.append(error)

    def _publish(self, key: str, number: int) -> Future[str]:
        while True:
            time.sleep(self.pause)
            try:
                return self._topic.publish(b"%d" % number, ordering_key=key)
            except FailedPrecondition:
                self.refused += 1
                # Messages without a key are welcome all the time.
                self._topic.publish(b"no key")
                self._stopping.wait(0.02)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(SECONDS)
        self._ps.close()
        assert self.failed == []


class Receiving:
    """A process that receives once it may, and is behind for some seconds then."""

    def __init__(
        self, bootstrap: str, subscription: str, got: dict[str | None, list[Message]], may: threading.Event
    ) -> None:
        self._got = got
        self._may = may
        self.partitions: set[int] = set()
        self._ps = PubSub(bootstrap)
        self.stream = self._ps.subscription(subscription).pull(self._handle, max_workers=8)

    def _handle(self, message: Message) -> None:
        self._may.wait(SECONDS)
        if message.ordering_key is not None:
            time.sleep(0.02)
        self._got[message.ordering_key].append(message)
        self.partitions.add(message.partition)
        message.ack()

    def stop(self) -> None:
        assert not self.stream.done()
        self._ps.close()


def test_keys_stay_in_order_while_publishers_and_subscribers_go_on(
    kafka: LocalKafka, ps: PubSub, change: Repartitioner, name: str
) -> None:
    ps.create_topic(name, partitions=2, message_ordering=True)
    ps.create_subscription(name, name, message_ordering=True)
    got: defaultdict[str | None, list[Message]] = defaultdict(list)
    seen: list[RepartitionProgress] = []
    may_receive = threading.Event()

    def tell(progress: RepartitionProgress) -> None:
        seen.append(progress)
        if progress.phase != "fencing":
            may_receive.set()

    with ExitStack() as stack:
        for _ in range(2):
            stack.callback(Receiving(kafka.bootstrap, name, got, may_receive).stop)
        publishers = [
            Publishing(kafka.bootstrap, name, [f"{number}-{key}" for key in range(10)]) for number in range(2)
        ]

        def counts() -> list[int]:
            return [len(sent) for each in publishers for sent in each.sent.values()]

        until(lambda: sum(counts()) > BACKLOG, "a backlog")
        change.run(name, 7, timeout=SECONDS, on_progress=tell)
        for each in publishers:
            each.pause = 0.01
        marks = counts()
        until(
            lambda: all(now > mark + 20 for now, mark in zip(counts(), marks, strict=True)),
            "publishers go on with keys",
        )
        for each in publishers:
            each.stop()
        sent = {
            key: [future.result(SECONDS) for future in futures]
            for each in publishers
            for key, futures in each.sent.items()
        }
        until(lambda: all(len(got[key]) >= len(ids) for key, ids in sent.items()), "all is received")
    assert [each.phase for each in seen if each.phase != "fencing"][-1] == "growing"
    assert all(each.refused for each in publishers)
    for key, ids in sent.items():
        # Rebalances may bring a message again, but never before its turn.
        first = list(dict.fromkeys(int(message.data) for message in got[key]))
        assert first == list(range(len(ids))), key
        partitions = [int(each.rsplit(":", 2)[1]) for each in ids]
        old, new = partition_of(key.encode(), 2), partition_of(key.encode(), 7)
        moved = partitions.index(new) if old != new else 0
        assert set(partitions[:moved]) <= {old}
        assert set(partitions[moved:]) == {new}, f"{key} went back"
    # New partitions reached their readers at once: of itself a group looks every five minutes.
    assert {message.partition for messages in got.values() for message in messages} >= {
        partition_of(key.encode(), 7) for key in sent
    }
    assert ps.topic(name).options.partitions == 7


def test_a_topic_grown_with_other_tools_is_drained_carried_over_and_used_again(
    kafka: LocalKafka, ps: PubSub, change: Repartitioner, name: str
) -> None:
    topic = ps.create_topic(name, partitions=2, message_ordering=True)
    sub = ps.create_subscription(name, name, message_ordering=True)
    for number in range(5):
        topic.publish(b"%d" % number, ordering_key="k").result(SECONDS)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(name, 3)])[name].result(SECONDS)
    with PubSub(kafka.bootstrap) as fresh:
        for call in (
            lambda: fresh.topic(name).publish(b"x", ordering_key="k"),
            lambda: fresh.subscription(name).pull(print),
        ):
            with pytest.raises(FailedPrecondition, match="made with 2 partitions and has 3 now"):
                call()
    with pytest.raises(DeadlineExceeded, match=r"\(5 messages, no process receives\)"):
        change.run(name, 3, timeout=FENCE + 3)
    got: list[Message] = []

    def handle(message: Message) -> None:
        got.append(message)
        message.ack()

    with sub.pull(handle) as stream:
        until(lambda: len(got) == 5, "the old layout is received")
        change.run(name, 3, timeout=SECONDS)
        topic.publish(b"5", ordering_key="k").result(SECONDS)
        until(lambda: len(got) == 6, "the new layout is received")
        assert not stream.done()
    assert [message.data for message in got] == [b"%d" % number for number in range(6)]
    retry = f"{name}.sub.{name}.retry"
    assert len(admin.list_topics(retry, timeout=SECONDS).topics[retry].partitions) == 3
