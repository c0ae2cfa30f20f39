"""Streams that read lanes on a real Kafka: lanes that go, change and come under them, clocks, held-up keys."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Producer

from kafka_pubsub import DeadLetterPolicy, FailedPrecondition, Message, PublishItem, PubSub, RetryPolicy
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.model import AckFuture
from kafka_pubsub.subscribe.stream.stream import Stream
from tests.support import until

SECONDS = 60
#: Within which a stream must have ended: 20 s, as the docs say, and some for a busy machine.
ENDED = 40.0


@pytest.fixture
def ps(kafka: LocalKafka) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as opened:
        yield opened


@pytest.fixture
def backend(kafka: LocalKafka) -> Iterator[KafkaBackend]:
    """Another client, which knows nothing of lanes."""
    backend = KafkaBackend(kafka.bootstrap)
    yield backend
    backend.close()


@pytest.fixture
def name() -> str:
    return f"s-{uuid.uuid4().hex[:12]}"


class Seen:
    """The messages that came, by their data; and whether each ack was stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came: list[tuple[bytes, int, bool]] = []
        self.acks: list[tuple[bytes, AckFuture]] = []

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.came.append((message.data, message.priority, message.durable))
            self.acks.append((message.data, message.ack_with_response()))

    @property
    def data(self) -> list[bytes]:
        with self._lock:
            return [each[0] for each in self.came]

    def has(self, data: bytes) -> bool:
        """Returns whether a message with this data came."""
        return data in self.data


def ends_with(stream: Stream, reason: str) -> float:
    """Waits until the stream ends with an error that says so; returns after how many seconds."""
    began = time.monotonic()
    with pytest.raises(FailedPrecondition, match=reason):
        stream.result(SECONDS)
    return time.monotonic() - began


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made-again"])
def test_a_lane_that_is_deleted_under_a_stream_ends_it_with_its_name(
    ps: PubSub, backend: KafkaBackend, name: str, again: bool
) -> None:
    topic = ps.create_topic(name, partitions=2, priorities=10)
    sub = ps.create_subscription(name, topic)
    for priority in (4, 7):
        topic.publish(b"%d" % priority, priority=priority).result(SECONDS)
    seen, stop = Seen(), threading.Event()

    def go_on() -> None:
        while not stop.wait(0.05):
            topic.publish(b"home").result(SECONDS)

    publisher = threading.Thread(target=go_on)
    stream = sub.pull(seen)
    try:
        until(lambda: {b"4", b"7"} <= set(seen.data))
        publisher.start()
        lane = f"{name}.lane.p7"
        config = backend.admin.topic(lane).config
        backend.admin.delete_topic(lane)
        if again:
            until(lambda: lane not in backend.admin.topic_names())
            backend.admin.create_topic(lane, 2, None, {"retention.ms": config["retention.ms"]})
        reason = rf"lane '{re.escape(lane)}' of topic '{name}' was deleted from Kafka.* by another client"
        assert ends_with(stream, reason) < ENDED
        with pytest.raises(FailedPrecondition, match=reason):
            sub.pull(seen)
    finally:
        stop.set()
        publisher.join(SECONDS)
        stream.close()


def test_a_lane_that_gets_more_partitions_under_a_stream_ends_it_with_its_name(
    ps: PubSub, backend: KafkaBackend, name: str
) -> None:
    topic = ps.create_topic(name, partitions=2, priorities=10)
    sub = ps.create_subscription(name, topic)
    topic.publish(b"x", priority=7).result(SECONDS)
    seen = Seen()
    stream = sub.pull(seen)
    until(lambda: seen.data == [b"x"])
    backend.admin.add_partitions(f"{name}.lane.p7", 3)
    assert ends_with(stream, rf"'{name}\.lane\.p7'.*3 partitions.*2") < ENDED
    with pytest.raises(FailedPrecondition, match=rf"'{name}\.lane\.p7'.*3 partitions.*must have 2"):
        sub.pull(seen)


def test_lanes_that_other_processes_add_under_running_streams_are_read_from_their_beginning(
    ps: PubSub, kafka: LocalKafka, name: str
) -> None:
    topic = ps.create_topic(name, partitions=4)
    sub = ps.create_subscription(name, topic, message_ordering=True)
    seen = Seen()
    with PubSub(kafka.bootstrap) as second, PubSub(kafka.bootstrap) as publishing:
        with sub.pull(seen), second.subscription(name).pull(seen):
            topic.publish(b"before", ordering_key="k").result(SECONDS)
            until(lambda: seen.data == [b"before"])
            publishing.update_topic(name, priorities=3, transient=True)
            other = publishing.topic(name)
            wanted = [b"%d" % number for number in range(60)]
            for number, body in enumerate(wanted):
                key = f"k{number % 5}" if number % 2 else None
                other.publish(body, ordering_key=key, priority=number % 3, durable=number % 4 > 0)
            other.flush(SECONDS)
            until(lambda: {*wanted, b"before"} <= set(seen.data))
            until(lambda: sub.state().lag == 0)
        # A callback that runs while its partition goes to the other stream acks in vain, and its message comes again.
        stored = [body for body, ack in seen.acks if ack.exception(SECONDS) is None]
        assert sorted(stored) == sorted([*wanted, b"before"])
        lanes = {body: (priority, durable) for body, priority, durable in reversed(seen.came)}
        assert lanes[b"before"] == (0, True), "it came before the topic had priorities"
        for body in wanted:
            lane = (int(body) % 3, int(body) % 4 > 0)
            # A stream that has not noticed its lanes yet takes the topic itself for all there is.
            assert lanes[body] == lane or (lane == (1, True) and lanes[body] == (0, True)), body
    assert [each.lag for each in sub.state().lanes] == [0] * 6


@pytest.mark.parametrize("keys", [False, True], ids=["no-keys", "keys"])
@pytest.mark.parametrize("partitions", [1, 8])
def test_on_an_ordered_subscription_an_urgent_message_overtakes_a_backlog_that_was_read(
    ps: PubSub, name: str, partitions: int, keys: bool
) -> None:
    topic = ps.create_topic(name, partitions=partitions, priorities=10)
    sub = ps.create_subscription(name, topic, message_ordering=True)
    low: list[PublishItem] = [
        {"data": b"low", "priority": 1, "ordering_key": f"k{number % 500}" if keys else None}
        for number in range(4000)
    ]
    topic.publish_many(low).result(SECONDS)
    topic.publish(b"first", priority=9).result(SECONDS)
    seen = Seen()

    def slow(message: Message) -> None:
        time.sleep(0.02)
        seen(message)

    overtaken = []
    with sub.pull(slow, max_workers=16):
        until(lambda: b"low" in seen.data)
        for number in range(5):
            urgent = b"urgent %d" % number
            topic.publish(urgent, priority=9, ordering_key=f"u{number}" if keys else None).result(SECONDS)
            before = len(seen.data)
            until(partial(seen.has, urgent))
            overtaken.append(seen.data.index(urgent) - before)
    assert len(seen.data) < len(low), "the backlog was gone before the last urgent message"
    assert max(overtaken) < 150, overtaken  # 16 run, and 800 go in a second


def test_a_brokers_clock_that_steps_back_blocks_nothing_and_reorders_no_lane(
    ps: PubSub, kafka: LocalKafka, backend: KafkaBackend, name: str
) -> None:
    """The records get the times of a clock that went from 100 to 50 s, and from 110 to 20 s."""
    topic = ps.create_topic(name, partitions=1, transient=True)
    sub = ps.create_subscription(name, topic)
    topic.publish(b"makes the lane", durable=False).result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    now = int(time.time() * 1000) - 200_000
    seen, read = Seen(), threading.Event()

    def see(message: Message) -> None:
        read.wait(SECONDS)
        seen(message)

    def has_publishers_times(lane: str) -> bool:
        return backend.admin.topic(lane).config["message.timestamp.type"] == "CreateTime"

    with sub.pull(see, max_workers=1) as stream:
        until(lambda: stream.stats.in_flight == 1)
        for lane, times in ((name, (100, 50, 120)), (f"{name}.lane.t0", (60, 110, 20))):
            backend.admin.update_topic(lane, {"message.timestamp.type": "CreateTime"})
            until(partial(has_publishers_times, lane))
            for at in times:
                producer.produce(lane, b"%d" % at, partition=0, timestamp=now + at * 1000)
                assert producer.flush(SECONDS) == 0
        until(lambda: stream.stats.received == 7)
        read.set()
        until(lambda: len(seen.data) == 7)
    # A message before an earlier time counts with that time: 50, 50, 120 and 20, 20, 20.
    assert seen.data[1:] == [b"60", b"110", b"20", b"100", b"50", b"120"]


def test_what_is_parked_in_lanes_is_released_and_dropped_by_its_id(
    ps: PubSub, kafka: LocalKafka, name: str
) -> None:
    topic = ps.create_topic(name, partitions=2, priorities=10, transient=True)
    ps.create_topic(f"{name}-dead", partitions=1)
    sub = ps.create_subscription(
        name,
        topic,
        message_ordering=True,
        retry=RetryPolicy(min_backoff=0.01, max_backoff=0.05),
        dead_letter=DeadLetterPolicy(topic=f"{name}-dead", on_exhausted="park"),
    )
    lanes = {"high": (9, True), "default": (4, True), "transient": (4, False)}
    places = {}
    for key, (priority, durable) in lanes.items():
        data = key.encode()
        places[key] = topic.publish(data, ordering_key=key, priority=priority, durable=durable).result(
            SECONDS
        )
    with sub.pull(Message.nack):
        until(lambda: [each.state for each in list(sub.keys())] == ["parked"] * 3)
    assert {
        each.ordering_key: f"{each.topic}:{each.partition}:{each.offset}" for each in list(sub.keys())
    } == places
    assert sub.release(ids=[places["high"]], drop=True).count == 1
    assert sub.release(ids=[places["transient"], places["default"].partition(":")[2]]).count == 2
    seen = Seen()
    with sub.pull(seen):
        until(lambda: sorted(seen.data) == [b"default", b"transient"])
        until(lambda: not sub.keys())
    (dead,) = sub.dead_letters()
    assert (dead.data, dead.topic) == (b"high", f"{name}.lane.p9")
