"""No gap: whatever the broker refuses in the middle, no later message of the key is stored until `resume`."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kafka_pubsub.config import Batching, PublishFlow
from kafka_pubsub.errors import InvalidArgument, OrderingKeyPaused, PublishError, PubSubError
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.publish.many import PublishItem, read_items
from kafka_pubsub.publish.publisher import PublishTarget, TopicPublisher
from kafka_pubsub.publish.writer_pool import WriterPool

# Seconds; upper bounds for a slow machine, not expectations.
PATIENCE = 60.0

SMALL_LIMIT = 20_000
KAFKAS_LIMIT = 1_048_588
SMALL_BATCHES = Batching(max_bytes=4_000, max_latency=0.001)


class Bench:
    """Publishers on a pool, and the contents of their topics."""

    def __init__(self, bootstrap: str, **config: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.backend = KafkaBackend(bootstrap, config)
        self.writers = WriterPool(self.backend.writer)
        self.publishers: list[TopicPublisher] = []

    def topic(self, partitions: int = 8, limit: int = KAFKAS_LIMIT) -> str:
        config = {"max.message.bytes": str(limit)}
        name = f"publish-{uuid.uuid4().hex[:12]}"
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(PATIENCE)
        return name

    def publisher(self, topic: str, limit: int = KAFKAS_LIMIT) -> TopicPublisher:
        publisher = TopicPublisher(topic, lambda: PublishTarget(None, limit), self.writers)
        self.publishers.append(publisher)
        return publisher

    def set_limit(self, topic: str, limit: int) -> None:
        entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(PATIENCE)

    def stored(self, topic: str, partitions: int = 8) -> list[tuple[bytes | None, bytes]]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader"})
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)[1]
            for number in range(partitions)
        }
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        records: list[tuple[bytes | None, bytes]] = []
        deadline = time.monotonic() + PATIENCE
        while len(records) < sum(ends.values()) and time.monotonic() < deadline:
            records += [(each.key(), each.value() or b"") for each in consumer.consume(1000, 0.2)]
        consumer.close()
        return records

    def close(self) -> None:
        for publisher in self.publishers:
            publisher.close(timeout=5)
        self.writers.close()
        self.backend.close()


@pytest.fixture
def bench(kafka: LocalKafka) -> Iterator[Bench]:
    bench = Bench(kafka.bootstrap)
    yield bench
    bench.close()


def number_of(body: bytes) -> int:
    return int(body.split(b":")[0])


def outcome(future: Future[str]) -> PubSubError | None:
    error = future.exception(PATIENCE)
    assert error is None or isinstance(error, PubSubError)
    return error


def assert_truthful(futures: list[Future[str]], stored: list[int]) -> None:
    """Futures tell the truth: stored, not stored, or unknown."""
    for number, future in enumerate(futures):
        error = outcome(future)
        if error is None:
            assert number in stored
        elif "may be in the topic" not in error.message:
            assert number not in stored, error.message


@pytest.mark.parametrize("many", [False, True], ids=["one by one", "one call"])
@pytest.mark.parametrize("primed", [False, True], ids=["fresh", "primed"])
@pytest.mark.parametrize("refused", [0, 50])
def test_a_message_that_the_broker_refuses_leaves_no_later_one_of_its_key(
    bench: Bench, primed: bool, refused: int, many: bool
) -> None:
    name = bench.topic(limit=SMALL_LIMIT)
    publisher = bench.publisher(name)
    publisher.configure(batching=SMALL_BATCHES)
    if primed:
        publisher.publish(b"-1:", ordering_key="K").result(PATIENCE)
    bodies = [b"%d:" % number + b"x" * (30_000 if number == refused else 500) for number in range(400)]
    futures: list[Future[str]] = (
        list(publisher.publish_many(read_items({"data": body, "ordering_key": "K"} for body in bodies)))
        if many
        else [publisher.publish(body, ordering_key="K") for body in bodies]
    )

    errors = [outcome(future) for future in futures]
    stored = [number_of(body) for _, body in bench.stored(name) if body != b"-1:"]
    assert stored == list(range(refused))
    assert all(error is None for error in errors[:refused])
    assert all(isinstance(error, PublishError) for error in errors[refused:])
    assert "isn't in the topic" in str(errors[refused])
    assert "max.message.bytes" in str(errors[refused])
    assert_truthful(futures, stored)

    assert isinstance(publisher.publish(b"400:", ordering_key="K").exception(PATIENCE), OrderingKeyPaused)
    publisher.resume("K")
    publisher.publish(b"401:", ordering_key="K").result(PATIENCE)
    assert number_of(bench.stored(name)[-1][1]) == 401


def test_a_refusal_spares_what_other_keys_publish_afterwards_and_reports_the_truth_about_all(
    bench: Bench,
) -> None:
    name = bench.topic(limit=SMALL_LIMIT)
    neighbour = bench.topic()
    publisher, other = bench.publisher(name), bench.publisher(neighbour)
    for each in (publisher, other):
        each.configure(batching=SMALL_BATCHES)
    futures: list[Future[str]] = []
    others: list[Future[str]] = []
    for number in range(2000):
        size = 30_000 if number == 900 else 300
        futures.append(publisher.publish(b"%d:" % number + b"x" * size, ordering_key=f"key-{number % 20}"))
        others.append(other.publish(b"%d:" % number + b"x" * 300, ordering_key=f"key-{number % 20}"))

    wait(futures + others, timeout=PATIENCE)
    for topic, published in ((name, futures), (neighbour, others)):
        stored = bench.stored(topic)
        numbers = [number_of(body) for _, body in stored]
        assert len(numbers) == len(set(numbers))
        assert_truthful(published, numbers)
        for key in range(20):
            of_key = [number_of(body) for each, body in stored if each == b"key-%d" % key]
            assert of_key == list(range(key, 2000, 20))[: len(of_key)], "a gap or a swap"
    publisher.resume("key-1")
    publisher.publish(b"2001:", ordering_key="key-1").result(PATIENCE)


def test_a_limit_that_is_lowered_and_raised_in_the_middle(bench: Bench) -> None:
    name = bench.topic()
    publisher = bench.publisher(name)
    publisher.configure(batching=SMALL_BATCHES)
    futures: list[Future[str]] = []
    stop = threading.Event()

    def change() -> None:
        while not stop.wait(0.05):
            bench.set_limit(name, SMALL_LIMIT)
            bench.set_limit(name, KAFKAS_LIMIT)

    changing = threading.Thread(target=change)
    changing.start()
    # Each fourth message is above the lowered limit; how many are refused is chance, the order isn't.
    for number in range(3000):
        size = 30_000 if number % 4 == 0 else 300
        futures.append(publisher.publish(b"%d:" % number + b"x" * size, ordering_key=f"key-{number % 5}"))
        if number % 100 == 99:
            for key in range(5):
                publisher.resume(f"key-{key}")
    stop.set()
    changing.join()

    assert not wait(futures, timeout=PATIENCE).not_done
    stored = bench.stored(name)
    numbers = [number_of(body) for _, body in stored]
    assert len(numbers) == len(set(numbers))
    assert_truthful(futures, numbers)
    for key in range(5):
        of_key = [number_of(body) for each, body in stored if each == b"key-%d" % key]
        assert of_key == sorted(of_key)


def test_a_batch_never_outgrows_the_topic_though_each_message_fits(bench: Bench) -> None:
    name = bench.topic(partitions=1, limit=SMALL_LIMIT)
    publisher = bench.publisher(name, SMALL_LIMIT)
    publisher.configure(batching=Batching(max_latency=0.2))
    futures = [publisher.publish(b"%d:" % number + b"x" * 3_000, ordering_key="K") for number in range(200)]
    assert [outcome(future) for future in futures] == [None] * 200
    assert [number_of(body) for _, body in bench.stored(name, 1)] == list(range(200))


@pytest.mark.parametrize("attributes", [None, {"kind": "created", "größe": "ä"}], ids=["plain", "attributes"])
@pytest.mark.parametrize("limit", [SMALL_LIMIT, KAFKAS_LIMIT, 5_000_000])
def test_the_largest_message_that_passes_our_check_is_stored_and_a_byte_more_is_refused_by_the_call(
    bench: Bench, limit: int, attributes: dict[str, str] | None
) -> None:
    name = bench.topic(partitions=1, limit=limit)
    publisher = bench.publisher(name, limit)
    low, high = limit - 1000, limit
    while high - low > 1:
        middle = (low + high) // 2
        try:
            publisher._look(b"x" * middle, b"K", None if attributes is None else _headers(attributes))
            low = middle
        except InvalidArgument:
            high = middle
    publisher.publish(b"x" * low, ordering_key="K", attributes=attributes).result(PATIENCE)
    with pytest.raises(InvalidArgument, match=f"max.message.bytes={limit}"):
        publisher.publish(b"x" * high, ordering_key="K", attributes=attributes)
    assert len(bench.stored(name, 1)) == 1


def _headers(attributes: dict[str, str]) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode()) for name, value in attributes.items()]


def test_a_topic_that_is_deleted_in_the_middle(kafka: LocalKafka) -> None:
    # librdkafka believes for 30 s that a new topic will appear after all; here it may give up sooner.
    bench = Bench(kafka.bootstrap, **{"topic.metadata.propagation.max.ms": "1000"})
    name = bench.topic()
    publisher = bench.publisher(name)
    publisher.publish(b"first", ordering_key="K").result(PATIENCE)
    bench.admin.delete_topics([name])[name].result(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    error: BaseException | None = None
    while error is None and time.monotonic() < deadline:
        error = publisher.publish(b"next", ordering_key="K").exception(PATIENCE)
    assert isinstance(error, PublishError)
    assert not isinstance(error, OrderingKeyPaused)
    assert isinstance(publisher.publish(b"more", ordering_key="K").exception(PATIENCE), OrderingKeyPaused)
    bench.close()


def test_flow_control_that_blocks_lets_everything_through_in_order(bench: Bench) -> None:
    name = bench.topic(partitions=1)
    publisher = bench.publisher(name)
    publisher.configure(flow=PublishFlow(max_messages=50))
    futures = [publisher.publish(b"%d:" % number, ordering_key="K") for number in range(3000)]
    publisher.flush(PATIENCE)
    assert all(future.done() for future in futures)
    assert [number_of(body) for _, body in bench.stored(name, 1)] == list(range(3000))


def test_other_batching_in_the_middle_keeps_the_order(bench: Bench) -> None:
    name = bench.topic(partitions=1)
    publisher = bench.publisher(name)
    futures = []
    for number in range(3000):
        futures.append(publisher.publish(b"%d:" % number, ordering_key="K"))
        if number % 500 == 250:
            publisher.configure(batching=Batching(max_latency=0.001 * (1 + number // 500)))
    publisher.flush(PATIENCE)
    assert [number_of(body) for _, body in bench.stored(name, 1)] == list(range(3000))


def test_callbacks_may_publish_wait_and_flush(bench: Bench) -> None:
    name = bench.topic(partitions=1)
    publisher = bench.publisher(name)
    publisher.configure(flow=PublishFlow(max_messages=5))
    ended = threading.Event()

    def again(future: Future[str]) -> None:
        for number in range(1, 100):
            publisher.publish(b"%d:" % number, ordering_key="K")
        publisher.publish(b"100:", ordering_key="K").result(PATIENCE)
        publisher.flush(PATIENCE)
        ended.set()

    publisher.publish(b"0:", ordering_key="K").add_done_callback(again)
    assert ended.wait(PATIENCE)
    assert [number_of(body) for _, body in bench.stored(name, 1)] == list(range(101))


def test_many_messages_of_one_call_lie_where_their_ids_say_in_each_keys_order(bench: Bench) -> None:
    name = bench.topic()
    publisher = bench.publisher(name)
    stored_before = 0
    for _ in range(2):  # the first call begins before anything is primed, the second takes the quick way
        items: list[bytes | PublishItem] = [
            {"data": b"%d:" % number, "ordering_key": f"k{number % 50}", "attributes": {"n": str(number)}}
            for number in range(3_000)
        ]
        ids = publisher.publish_many(read_items(items)).result(PATIENCE)
        assert len(set(ids)) == len(items)
        records = bench.stored(name)
        assert len(records) == stored_before + len(items)
        stored_before = len(records)
    for key in {key for key, _ in records}:
        numbers = [number_of(body) for each, body in records if each == key]
        half = len(numbers) // 2
        assert numbers[:half] == numbers[half:] == sorted(numbers[:half])
