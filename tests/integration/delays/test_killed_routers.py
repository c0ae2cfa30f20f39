"""A router is killed in any phase of a transaction: another takes over, and each message is home once, in order."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pytest

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.config import Batching
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.model import ReadFrom, StoredRecord, TopicPartition
from kafka_pubsub.services.delays import DelayRouter
from tests.integration.delays.killed_router import PHASES
from tests.support import until

#: The router's group and topics are the cluster's, so these tests need one of their own.


@pytest.fixture(scope="module")
def kafka() -> Iterator[RunningKafka]:
    with LocalKafka() as broker:
        yield RunningKafka(broker.bootstrap)


@pytest.fixture
def ps(kafka: RunningKafka) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as pubsub:
        yield pubsub


class Home:
    """Reads a topic as any consumer of committed records does."""

    def __init__(self, ps: PubSub, topic: Topic) -> None:
        self._backend, self._topic = ps._cluster.backend, topic.name
        self.records: list[StoredRecord] = []
        self._reader = self._backend.reader(f"read-{topic.name}", "home")
        self._reader.subscribe([self._topic], self)

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None: ...
    def lost(self, partitions: Sequence[TopicPartition]) -> None: ...
    def failed(self, partition: TopicPartition | None, error: Exception, fatal: bool) -> None: ...

    def count(self) -> int:
        self.records += self._reader.read(1000, 0.2)
        return len(self.records)

    def close(self) -> None:
        self._reader.close()


def publish(topic: Topic, count: int) -> dict[str, tuple[float, str]]:
    """Publishes with delays of up to 6 seconds; by id the delay and the key."""
    sent = []
    for n in range(count):
        delay, key = (n * 37 % 60) / 10 + 0.05, f"k{n % 5}"
        sent.append((topic.publish(b"%d" % n, ordering_key=key, delay=delay), delay, key))
    topic.flush(30)
    return {future.result(): (delay, key) for future, delay, key in sent}


def judge(home: Home, sent: dict[str, tuple[float, str]], published_at: float) -> None:
    ids = [dict(record.headers() or ())["ps-id"] for record in home.records]
    assert len(ids) == len(set(ids)), "doubled"
    assert {(each or b"").decode() for each in ids} == set(sent), "lost"
    by_key: dict[str, list[int]] = defaultdict(list)
    for record, message_id in zip(home.records, ids, strict=True):
        delay, key = sent[(message_id or b"").decode()]
        assert record.key() == key.encode()
        delivered = record.timestamp()[1] / 1000
        assert delivered >= published_at + delay - 0.002, "early"
        by_key[key].append(record.timestamp()[1])
    assert all(times == sorted(times) for times in by_key.values()), "out of order"


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("transaction", [2, 5])
def test_a_router_killed_in_a_transaction_loses_and_doubles_nothing(
    ps: PubSub, kafka: RunningKafka, phase: str, transaction: int
) -> None:
    topic = ps.create_topic(f"home-{phase}-{transaction}", partitions=3)
    command = [sys.executable, "-m", "tests.integration.delays.killed_router"]
    with subprocess.Popen([*command, kafka.bootstrap, phase, str(transaction)]) as killed:
        until(lambda: ps.delay_routers() == 1)
        published_at = time.time()
        sent = publish(topic, 60)
        try:
            killed.wait(60)
        finally:
            killed.kill()
    with DelayRouter(ps):
        home = Home(ps, topic)
        until(lambda: home.count() >= len(sent))
        time.sleep(0.5)  # a second copy would come now
        home.count()
        home.close()
    judge(home, sent, published_at)


def test_two_routers_share_the_partitions_and_one_that_is_killed_is_replaced(
    ps: PubSub, kafka: RunningKafka
) -> None:
    topic = ps.create_topic("home-shared", partitions=3)
    command = [sys.executable, "-m", "tests.integration.delays.killed_router", kafka.bootstrap, "never", "0"]
    with subprocess.Popen(command) as killed, DelayRouter(ps, tiers=4) as router:
        until(lambda: router.health().partitions == 1 and ps.delay_routers() == 2)
        published_at = time.time()
        sent = publish(topic, 200)
        killed.kill()
        killed_at = time.monotonic()
        until(lambda: router.health().partitions == 2)
        assert time.monotonic() - killed_at < 30  # 10 s on an idle machine
        home = Home(ps, topic)
        until(lambda: home.count() >= len(sent))
        home.close()
    judge(home, sent, published_at)


def test_records_of_other_programs_in_ingest_hold_up_nothing(ps: PubSub) -> None:
    topic = ps.create_topic("home-foreign", partitions=1)
    with DelayRouter(ps):
        writer = ps._cluster.backend.writer(Batching(), 10**6)
        writer.append("_kafka_pubsub.delay.in", b"foreign", b"k", [("a", b"b")], lambda *_: None)
        writer.flush(10)
        published_at = time.time()
        sent = publish(topic, 20)
        home = Home(ps, topic)
        until(lambda: home.count() >= len(sent))
        home.close()
    judge(home, sent, published_at)
