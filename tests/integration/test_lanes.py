"""Publishing to lanes on a real Kafka: the behaviour that only the broker decides."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest

from kafka_pubsub import FailedPrecondition, PublishError, PubSub
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import read_lane_headers
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.model import StoredRecord, TopicPartition

SECONDS = 60


@pytest.fixture
def ps(kafka: LocalKafka) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"l-{uuid.uuid4().hex[:12]}"


def read(bootstrap: str, topics: list[str], partitions: int = 1) -> list[StoredRecord]:
    """All records of the topics."""
    backend = KafkaBackend(bootstrap)
    fetch = backend.record_fetch()
    try:
        found: list[StoredRecord] = []
        for topic in topics:
            for number in range(partitions):
                place = TopicPartition(topic, number)
                start, end = backend.admin.log_range(place)
                while start < end:
                    some = fetch.fetch(place, range(start, end), 1 << 24, SECONDS).records
                    found += some
                    start = (some[-1].offset() or 0) + 1 if some else end
        return found
    finally:
        fetch.close()
        backend.close()


def number_of(record: StoredRecord) -> int:
    said = read_lane_headers(record.headers())[0]
    assert said is not None
    return said.number


def test_lanes_are_kafka_topics_with_the_settings_of_their_topic(
    ps: PubSub, kafka: LocalKafka, name: str
) -> None:
    topic = ps.create_topic(name, partitions=3, priorities=10, transient=True, retention=7200)
    ps.create_subscription(f"{name}-s", name)
    assert topic.publish(b"x", priority=7).result(SECONDS).startswith(f"{name}.lane.p7:")
    assert topic.publish(b"x", durable=False).result(SECONDS).startswith(f"{name}.lane.t4:")
    backend = KafkaBackend(kafka.bootstrap)
    try:
        for lane, retention in (
            (name, "7200000"),
            (f"{name}.lane.p7", "7200000"),
            (f"{name}.lane.t4", "3600000"),
        ):
            info = backend.admin.topic(lane)
            assert info.partitions == 3
            assert info.config["message.timestamp.type"] == "LogAppendTime"
            assert info.config["retention.ms"] == retention
        assert backend.admin.topic(f"{name}.lane.t4.sub.{name}-s.retry").partitions == 3
    finally:
        backend.close()
    assert topic.lanes == [name, f"{name}.lane.p7", f"{name}.lane.t4"]
    with PubSub(kafka.bootstrap) as other:
        assert other.topic(name).publish(b"x", priority=7).result(SECONDS)
        assert other.topic(name).lanes == topic.lanes


def test_lanes_are_added_to_a_topic_that_is_in_use_and_deleted_with_it(
    ps: PubSub, kafka: LocalKafka, name: str
) -> None:
    topic = ps.create_topic(name, partitions=1)
    before = [topic.publish(b"%d" % number) for number in range(100)]
    ps.update_topic(name, priorities=3)
    after = [topic.publish(b"%d" % number, priority=number % 3) for number in range(100)]
    assert len({each.result(SECONDS) for each in before + after}) == 200
    records = read(kafka.bootstrap, topic.lanes)
    assert len(records) == 200
    assert {record.timestamp()[0] for record in records if record.topic() != name} == {2}
    ps.delete_topic(name)
    backend = KafkaBackend(kafka.bootstrap)
    try:
        assert [each for each in backend.admin.topic_names() if each.startswith(name)] == []
    finally:
        backend.close()


def test_one_publisher_that_alternates_keeps_its_order_by_the_brokers_time(
    ps: PubSub, kafka: LocalKafka, name: str
) -> None:
    """Thousands of messages of both classes without a key, and of keys that change their priority."""
    topic = ps.create_topic(name, partitions=1, priorities=3, transient=True)
    futures = [topic.publish(b"%d" % number, durable=number % 2 == 0) for number in range(1000)]
    futures += [
        topic.publish(b"%d" % number, ordering_key=f"k{number % 3}", priority=number % 2)
        for number in range(500)
    ]
    futures += [topic.publish(b"%d" % number, durable=number < 1000) for number in range(2000)]
    assert len({each.result(SECONDS) for each in futures}) == 3500
    assert topic.given_up == 0
    records = read(kafka.bootstrap, topic.lanes)
    assert len(records) == 3500
    lines: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for record in records:
        lane = record.topic() or ""
        priority = lane[-1] if lane != name else "1"
        kind, milliseconds = record.timestamp()
        assert kind == 2
        lines[priority].append((milliseconds, number_of(record), lane))
    for some in lines.values():
        # By the broker's time; within a tick by the publisher's number.
        assert [number for _, number, _ in sorted(some)] == sorted(number for _, number, _ in some)
    places = {(record.topic(), record.offset()): record for record in records}
    backend = KafkaBackend(kafka.bootstrap)
    ids = {each: backend.admin.topic(each).topic_id for each in topic.lanes}
    backend.close()
    topics = {Lane(1, True): name} | {
        Lane(each, durable): f"{name}.lane.{'p' if durable else 't'}{each}"
        for each in range(3)
        for durable in (True, False)
        if (each, durable) != (1, True)
    }
    named = others = 0
    for record in records:
        sent, after = read_lane_headers(record.headers())
        for at, said in after.items():
            named += 1
            earlier = places[topics[at], said.offset]
            assert (earlier.key(), number_of(earlier)) == (record.key(), said.number)
            assert said.log == ids[topics[at]]
            assert said.number < number_of(record)
        if sent is not None and sent.other is not None:
            others += 1
            other = name if record.topic() != name else f"{name}.lane.t1"
            assert number_of(places[other, sent.other.offset]) == sent.other.number < sent.number
    assert named > 400
    assert others > 1500


def test_a_lane_that_is_deleted_by_another_client_is_named(ps: PubSub, kafka: LocalKafka, name: str) -> None:
    topic = ps.create_topic(name, partitions=1, priorities=10)
    topic.publish(b"x", priority=7).result(SECONDS)
    backend = KafkaBackend(kafka.bootstrap)
    try:
        backend.admin.delete_topic(f"{name}.lane.p7")
    finally:
        backend.close()
    with PubSub(kafka.bootstrap) as other:
        with pytest.raises(FailedPrecondition, match=r"lane.*was deleted from Kafka by another client"):
            other.topic(name).publish(b"x", priority=7)
        assert other.topic(name).publish(b"x").result(SECONDS) == f"{name}:0:0"


# -- outages ---------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(kafka: LocalKafka) -> Iterator[LocalKafka]:
    """A broker of our own, that may be killed; after `kafka`, which skips when there can be none."""
    with LocalKafka() as broker:
        yield broker


def test_a_broker_that_dies_costs_transient_messages_which_are_counted_and_durable_ones_time_only(
    broker: LocalKafka, name: str
) -> None:
    with PubSub(broker.bootstrap) as ps:
        topic = ps.create_topic(name, partitions=2, priorities=4, transient=True)
        for priority in range(4):
            for durable in (True, False):
                topic.publish(b"first", priority=priority, durable=durable).result(SECONDS)
        dying = threading.Thread(target=broker.kill)
        durable_ones: list[Future[str]] = []
        transient_ones: list[Future[str]] = []
        slowest = 0.0
        for number in range(3000):
            if number == 1000:
                dying.start()
            if number == 2000:
                dying.join()
            durable = number % 3 != 0
            began = time.monotonic()
            future = topic.publish(
                b"%d" % number, ordering_key=f"k{number % 7}", priority=number // 7 % 3, durable=durable
            )
            slowest = max(slowest, time.monotonic() - began)
            (durable_ones if durable else transient_ones).append(future)
        # Without a broker a transient message fails, and a durable one waits; neither blocks its caller. In its
        # priority no durable message waits before it.
        lost = topic.publish(b"lost", priority=3, durable=False)
        with pytest.raises(PublishError, match="given up"):
            lost.result(SECONDS)
        assert slowest < 1
        assert not durable_ones[-1].done()
        broker.start()
        assert not wait([*durable_ones, *transient_ones, lost], SECONDS).not_done
        assert [each.exception() for each in durable_ones if each.exception()] == []
        failed = [each for each in (*transient_ones, lost) if each.exception()]
        assert all("given up" in str(each.exception()) for each in failed)
        assert topic.given_up == len(failed) > 0
        lanes = topic.lanes
    records = read(broker.bootstrap, lanes, partitions=2)
    bodies = [
        record.value() or b"" for record in records if (record.topic() or "").rpartition(".")[2][:1] != "t"
    ]
    expected = [b"%d" % number for number in range(3000) if number % 3]
    assert sorted(body for body in bodies if body != b"first") == sorted(expected)
    stored = {f"{record.topic()}:{record.partition()}:{record.offset()}" for record in records}
    assert {each.result() for each in transient_ones if not each.exception()} <= stored
    orders: dict[tuple[str | None, bytes | None], list[int]] = defaultdict(list)
    for record in records:
        if record.key() is not None:
            orders[record.topic(), record.key()].append(number_of(record))
    assert all(some == sorted(some) for some in orders.values())
