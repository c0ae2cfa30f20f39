"""Redelivery through the retry topic on a real Kafka: order, attempts, take-overs, dead letters, a killed owner."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_pubsub import FailedPrecondition, Message, PubSub
from kafka_pubsub.config import DeadLetterPolicy, RetryPolicy
from kafka_pubsub.log.kafka import commit_requests
from kafka_pubsub.log.kafka.reader import KafkaLogReader
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.takeover.rejoining_reader import RejoiningReader
from tests.support import until

#: Seconds after which a test gives up; far above the time that anything here takes.
PATIENCE = 60.0
Protocol = Literal["classic", "consumer"]
#: Under `consumer` partitions come and go separately, so a pair's halves at different times.
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])
QUICK = RetryPolicy(min_backoff=0.05, max_backoff=0.3)


@pytest.fixture
def protocol() -> Protocol:
    return "classic"


@pytest.fixture
def ps(kafka: Any, protocol: Protocol) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap, group_protocol=protocol) as ps:
        yield ps


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def publish(ps: PubSub, topic: str, numbers: range, keys: int) -> None:
    futures = [
        ps.topic(topic).publish(b"%d" % at, ordering_key=f"k{at % keys}", attributes={"n": str(at)})
        for at in numbers
    ]
    for future in futures:
        future.result(PATIENCE)


def publish_until(ps: PubSub, topic: str, first: int, done: Callable[[], object], keys: int = 50) -> int:
    """Publishes on and on until that is true; returns the next number."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        publish(ps, topic, range(first, first + 100), keys)
        first += 100
        time.sleep(0.1)
    return first


@pytest.fixture
def cluster(kafka: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


class Seen:
    """The messages that were delivered and acked, by key."""

    def __init__(self, fails: Callable[[Message], bool]) -> None:
        self.begun: defaultdict[str | None, list[tuple[int, int]]] = defaultdict(list)
        self.acked: defaultdict[str | None, list[int]] = defaultdict(list)
        self.ids: set[str] = set()
        self.fails = fails
        self.changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        number = int(message.data)
        assert message.attributes == {"n": str(number)}
        with self.changed:
            self.begun[message.ordering_key].append((number, message.delivery_attempt))
            self.ids.add(message.message_id)
            if self.fails(message):
                message.nack()
            else:
                message.ack()
                self.acked[message.ordering_key].append(number)
            self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Until so many different messages were acked."""
        with self.changed:
            enough = self.changed.wait_for(
                lambda: sum(len(set(some)) for some in self.acked.values()) >= count, PATIENCE
            )
            assert enough, {key: len(set(some)) for key, some in self.acked.items()}

    def check(self) -> None:
        for key, numbers in self.acked.items():
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), f"{key}: acked before an earlier one of its key: {numbers}"


@both_protocols
def test_nacks_keep_the_order_of_their_keys(ps: PubSub, name: str) -> None:
    ps.create_topic(name, partitions=4)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    seen = Seen(lambda message: int(message.data) % 9 == 0 and message.delivery_attempt < 3)
    with sub.pull(seen) as stream:
        publish(ps, name, range(2000), 50)
        seen.wait_for(2000)
        assert stream.stats.moved >= 2 * 222
    seen.check()
    assert len(seen.ids) == 2000, "a redelivered message keeps its id"
    assert sub.state().lag == 0


def test_a_checkpoint_takes_over_what_the_map_has_no_room_for(
    kafka: Any, ps: PubSub, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key fails all the time, the others' messages once each: their ends lie scattered among the waiting messages."""
    monkeypatch.setattr(ack_map, "CAPACITY", ack_map.NOTED + 60)
    ps.create_topic(name, partitions=1)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    first = Seen(
        lambda message: (
            message.ordering_key == "k0" or (int(message.data) % 3 == 0 and message.delivery_attempt == 1)
        )
    )
    place = TopicPartition(f"{name}.sub.{name}.retry", 0)
    looker = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": name})

    def named() -> bool:
        (stored,) = looker.committed([place], PATIENCE)
        found = ack_map.decode(stored.metadata or "", stored.offset)
        return found is not None and found.checkpoint is not None and found.more

    with sub.pull(first):
        last = publish_until(ps, name, 0, named, keys=5)
        first.wait_for(last * 4 // 5)
    looker.close()
    first.check()
    (state,) = sub.keys()
    assert (state.ordering_key, state.partition, state.offset) == ("k0", 0, 0)
    assert state.behind >= last // 5 - 200

    second = Seen(lambda message: False)
    with sub.pull(second):
        second.wait_for(last // 5)
        publish(ps, name, range(last, last + 50), 5)
        second.wait_for(last // 5 + 50)
    assert second.acked.pop("k0") == list(range(0, last + 50, 5))
    assert sorted(number for some in second.acked.values() for number in some) == [
        number for number in range(last, last + 50) if number % 5
    ], "what was acked is delivered again"
    assert sub.state().lag == 0


@both_protocols
def test_members_that_come_and_go_keep_the_order(
    kafka: Any, ps: PubSub, name: str, protocol: Protocol
) -> None:
    ps.create_topic(name, partitions=4)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    seen = Seen(lambda message: int(message.data) % 9 == 0 and message.delivery_attempt < 3)
    with sub.pull(seen):
        publish(ps, name, range(500), 50)
        with PubSub(kafka.bootstrap, group_protocol=protocol) as other:
            with other.subscription(name).pull(seen) as stream:
                last = publish_until(ps, name, 500, lambda: stream.stats.received > 100)
                seen.wait_for(last - 100)
            publish(ps, name, range(last, last + 500), 50)
        seen.wait_for(last + 500)
    seen.check()
    assert sub.state().lag == 0


def test_what_is_used_up_is_dead_lettered_and_its_successors_go_on(ps: PubSub, name: str) -> None:
    ps.create_topic(name, partitions=2)
    ps.create_topic(name + "-dead", partitions=3)
    policy = DeadLetterPolicy(topic=name + "-dead", max_attempts=5)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK, dead_letter=policy)
    dead_letter_topics = ps.create_subscription(name + "-dead", name + "-dead")
    seen = Seen(lambda message: int(message.data) == 7)
    with sub.pull(seen):
        publish(ps, name, range(50), 5)
        seen.wait_for(49)
        until = time.monotonic() + PATIENCE
        buried: list[Message] = []
        while not buried:
            assert time.monotonic() < until
            buried = dead_letter_topics.receive(1, timeout=5)
    seen.check()
    assert [attempt for number, attempt in seen.begun["k2"] if number == 7] == [1, 2, 3, 4, 5]
    assert (buried[0].data, buried[0].ordering_key) == (b"7", "k2")
    assert dict(buried[0].headers)["ps-dead-attempts"] == b"5"
    buried[0].ack()


@both_protocols
def test_what_does_not_land_at_a_revoke_ends_the_membership_and_not_the_stream(
    kafka: Any, ps: PubSub, name: str, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps.create_topic(name, partitions=4)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    seen = Seen(lambda message: int(message.data) % 9 == 0 and message.delivery_attempt < 3)
    rejoined: list[RejoiningReader] = []
    rejoin, wait = RejoiningReader.rejoin, RetryIO.wait

    def rejoining(self: RejoiningReader) -> None:
        rejoined.append(self)
        rejoin(self)

    def never_lands(self: RetryIO, numbers: list[PartitionId], timeout: float = 4) -> list[PartitionId]:
        return list(numbers) if not rejoined else wait(self, numbers, timeout)

    monkeypatch.setattr(RejoiningReader, "rejoin", rejoining)
    monkeypatch.setattr(RetryIO, "wait", never_lands)
    with sub.pull(seen) as stream:
        publish(ps, name, range(500), 50)
        seen.wait_for(100)
        with (
            PubSub(kafka.bootstrap, group_protocol=protocol) as other,
            other.subscription(name).pull(seen) as second,
        ):
            last = publish_until(ps, name, 500, lambda: second.stats.received > 100)
            assert rejoined
            seen.wait_for(last - 100)
        publish(ps, name, range(last, last + 500), 50)
        seen.wait_for(last + 500)
        assert not stream.done()
    seen.check()
    assert sub.state().lag == 0


def test_a_commit_that_is_on_its_way_at_a_revoke_ends_the_membership(
    kafka: Any, ps: PubSub, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a frozen coordinator: librdkafka has the request in hand, and the answer doesn't come in time."""
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name, message_ordering=True)
    members: list[KafkaLogReader] = []
    commit_now, frozen, thaw = KafkaLogReader._commit_now, threading.Event(), threading.Event()

    def commit_late(self: KafkaLogReader, offsets: list[TopicPartition]) -> list[TopicPartition]:
        if self not in members:
            members.append(self)
        if self is members[0] and frozen.is_set():
            assert thaw.wait(PATIENCE)
        return commit_now(self, offsets)

    monkeypatch.setattr(commit_requests, "_PATIENCE", 0.5)
    monkeypatch.setattr(KafkaLogReader, "_commit_now", commit_late)
    seen = Seen(lambda message: False)
    with sub.pull(seen) as stream:
        publish(ps, name, range(100), 50)
        seen.wait_for(100)
        frozen.set()
        with PubSub(kafka.bootstrap) as other, other.subscription(name).pull(seen) as second:
            last = publish_until(ps, name, 100, lambda: second.stats.received > 100)
            seen.wait_for(last)
        publish(ps, name, range(last, last + 100), 50)
        seen.wait_for(last + 100)
        assert not stream.done()
        assert members[0].closed
        thaw.set()
    seen.check()
    assert sub.state().lag == 0


def test_a_commit_that_is_stored_late_undoes_nothing(
    ps: PubSub, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a coordinator that answers after minutes: a move must not be stored before the commit is over."""
    ps.create_topic(name, partitions=1)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    commit_now, held, thaw = KafkaLogReader._commit_now, threading.Event(), threading.Event()

    def commit_late(self: KafkaLogReader, offsets: list[TopicPartition]) -> list[TopicPartition]:
        if max(each.offset for each in offsets) >= 3 and not held.is_set():
            held.set()
            assert thaw.wait(PATIENCE)
        return commit_now(self, offsets)

    monkeypatch.setattr(KafkaLogReader, "_commit_now", commit_late)
    seen = Seen(lambda message: int(message.data) >= 3 and message.delivery_attempt < 2)
    with sub.pull(seen) as stream:
        publish(ps, name, range(3), 3)
        assert held.wait(PATIENCE)
        publish(ps, name, range(3, 9), 3)
        until(lambda: stream.stats.received >= 9)
        time.sleep(3.0)  # a move would follow within 0.2 s
        assert stream.stats.moved == 0
        thaw.set()
        seen.wait_for(9)
        assert stream.stats.moved > 0
        assert not stream.done()
    seen.check()
    assert sub.state().lag == 0


def test_a_retry_topic_that_is_made_again_is_gone_on_with(
    cluster: AdminClient, ps: PubSub, name: str
) -> None:
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    retry = f"{name}.sub.{name}.retry"
    seen = Seen(lambda message: int(message.data) % 9 == 0 and message.delivery_attempt < 2)
    with sub.pull(seen) as stream:
        publish(ps, name, range(200), 50)
        seen.wait_for(200)
        before = stream.stats.moved
        cluster.delete_topics([retry])[retry].result(PATIENCE)
        until(lambda: retry not in cluster.list_topics(timeout=PATIENCE).topics)
        ps.update_subscription(name, remake_retry_topic=True)
        publish(ps, name, range(200, 400), 50)
        seen.wait_for(400)
        assert stream.stats.moved > before
        assert not stream.done()
    seen.check()
    with sub.pull(seen):
        publish(ps, name, range(400, 500), 50)
        seen.wait_for(500)
    assert sub.state().lag == 0


def test_a_retry_topic_that_is_deleted_ends_the_stream_with_a_reason(
    cluster: AdminClient, ps: PubSub, name: str
) -> None:
    ps.create_topic(name, partitions=2)
    sub = ps.create_subscription(name, name, message_ordering=True, retry=QUICK)
    retry = f"{name}.sub.{name}.retry"
    seen = Seen(lambda message: int(message.data) % 9 == 0 and message.delivery_attempt < 2)
    with sub.pull(seen) as stream:
        publish(ps, name, range(100), 50)
        seen.wait_for(100)
        cluster.delete_topics([retry])[retry].result(PATIENCE)
        with pytest.raises(FailedPrecondition, match=r"retry topic .* was deleted by another client"):
            stream.result(PATIENCE)
    publish(ps, name, range(100, 200), 50)
    ps.update_subscription(name, remake_retry_topic=True)
    with sub.pull(seen):
        seen.wait_for(200)
    seen.check()
