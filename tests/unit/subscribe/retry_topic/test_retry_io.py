"""Redelivery through the retry topic over memory: what a user sees of nacks, expiry, two processes, crashes and poison.

The shell is real, threads included; the log is in memory.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_pubsub import Message, PubSub
from kafka_pubsub.config import DeadLetterPolicy, RetryPolicy
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.notes import Doubt, Notes
from kafka_pubsub.subscription import Subscription
from tests.unit.subscribe.workers.holding import PATIENCE

QUICK = RetryPolicy(min_backoff=0.01, max_backoff=0.05)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryBackend().cluster


@pytest.fixture
def ps(cluster: MemoryCluster) -> Iterator[PubSub]:
    with PubSub.in_memory(MemoryBackend(cluster=cluster)) as ps:
        ps.create_topic("orders", partitions=2)
        yield ps


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    return ps.create_subscription("billing", "orders", message_ordering=True, retry=QUICK)


def publish(ps: PubSub, count: int, keys: int = 3, first: int = 0) -> None:
    topic = ps.topic("orders")
    numbers = range(first, first + count)
    futures = [topic.publish(b"%d" % at, ordering_key=f"k{at % keys}") for at in numbers]
    for future in futures:
        future.result(timeout=PATIENCE)


class Seen:
    """What was delivered, by key: (message, attempt); and what was acked."""

    def __init__(self, fails: Callable[[Message], bool] = lambda message: False) -> None:
        self.by_key: defaultdict[str | None, list[tuple[int, int]]] = defaultdict(list)
        self.acked: defaultdict[str | None, list[int]] = defaultdict(list)
        self.ids: defaultdict[str, set[int]] = defaultdict(set)
        self.count = 0
        self.fails = fails
        self.changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self.changed:
            number = int(message.data)
            self.by_key[message.ordering_key].append((number, message.delivery_attempt))
            self.ids[message.message_id].add(number)
            if self.fails(message):
                message.nack()
            else:
                message.ack()
                self.acked[message.ordering_key].append(number)
                self.count += 1
            self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        self.until(lambda: self.count >= count)

    def until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), f"{self.count} acked: {dict(self.by_key)}"

    def in_order(self) -> None:
        for key, numbers in self.acked.items():
            assert numbers == sorted(set(numbers)), f"{key}: {numbers}"


def first_time(number: int) -> Callable[[Message], bool]:
    return lambda message: int(message.data) == number and message.delivery_attempt == 1


def unfinished(
    cluster: MemoryCluster, place: TopicPartition, stored: Committed, end: int
) -> list[int | None]:
    """The messages that a commit doesn't list as finished. The commit may stay at a checkpoint while that is new."""
    position = stored.offset or 0
    noted = ack_map.decode(stored.metadata, position)
    done = {offset for run in noted.runs for offset in range(*run)} if noted is not None else set()
    return [
        record.offset()
        for record in cluster.log(place).read(position, end)
        if record.key() is not None and record.offset() not in done
    ]


def settled(sub: Subscription, cluster: MemoryCluster) -> None:
    """Everything is finished, in both topics."""
    until = time.monotonic() + PATIENCE
    backend = MemoryBackend(cluster=cluster)
    retry = backend.catalog.subscriptions()["billing"].retry_topic
    assert retry is not None
    while True:
        lag = sub.state().lag
        ends = backend.admin.last_stable_offsets(retry.name)
        stored = backend.admin.group_offsets("billing", retry.name)
        left = {
            n: unfinished(cluster, TopicPartition(retry.name, n), stored[n], end)
            for n, end in ends.items()
            if end
        }
        if not lag and not any(left.values()):
            return
        assert time.monotonic() < until, f"lag {lag}, unfinished in the retry topic: {left}"
        threading.Event().wait(0.01)


def test_without_nacks_nothing_moves(ps: PubSub, sub: Subscription) -> None:
    seen = Seen()
    with sub.pull(seen) as stream:
        publish(ps, 60)
        seen.wait_for(60)
        assert stream.stats.moved == 0
    seen.in_order()
    assert all(attempt == 1 for some in seen.by_key.values() for _, attempt in some)
    assert sub.state().lag == 0


def test_a_nack_goes_through_the_retry_topic_and_its_successors_wait(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    seen = Seen(first_time(4))
    with sub.pull(seen) as stream:
        publish(ps, 60)
        seen.wait_for(60)
        assert stream.stats.moved >= 1
        settled(sub, cluster)
    seen.in_order()
    assert [each for each in seen.by_key["k1"] if each[0] == 4] == [(4, 1), (4, 2)]
    at = seen.by_key["k1"].index((4, 1))
    assert seen.by_key["k1"][at + 1] == (4, 2), "a successor came before its redelivery"
    assert all(len(numbers) == 1 for numbers in seen.ids.values()), "an id stands for two messages"
    assert len(seen.ids) == 60, "a redelivered message has its own id"


def test_many_nacks_keep_every_key_in_order(ps: PubSub, sub: Subscription, cluster: MemoryCluster) -> None:
    seen = Seen(lambda message: int(message.data) % 5 == 0 and message.delivery_attempt < 4)
    with sub.pull(seen) as stream:
        publish(ps, 200, keys=20)
        seen.wait_for(200)
        assert stream.stats.moved >= 3 * 40
        settled(sub, cluster)
    seen.in_order()


def test_a_message_without_a_key_parks_nobody(ps: PubSub, sub: Subscription) -> None:
    seen = Seen(first_time(0))
    topic = ps.topic("orders")
    with sub.pull(seen) as stream:
        for at in range(20):
            topic.publish(b"%d" % at).result(PATIENCE)
        seen.wait_for(20)
        assert stream.stats.moved == 1
        with pytest.warns(DeprecationWarning, match="moved"):
            assert stream.stats.relocated == 1
    assert sorted(seen.acked[None]) == list(range(20))
    assert (0, 2) in seen.by_key[None]


def test_a_deadline_that_passes_moves(ps: PubSub) -> None:
    sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=QUICK, ack_deadline=1)
    kept: list[Message] = []
    seen = Seen()

    def handle(message: Message) -> None:
        if int(message.data) == 0 and message.delivery_attempt == 1:
            kept.append(message)
        else:
            seen(message)

    with sub.pull(handle) as stream:
        publish(ps, 9)
        seen.wait_for(9)
        kept[0].ack()  # too late
        assert stream.stats.moved >= 1
    seen.in_order()
    assert seen.by_key["k0"][0] == (0, 2)


def test_what_waits_survives_its_process(ps: PubSub, cluster: MemoryCluster) -> None:
    slow = RetryPolicy(min_backoff=0.5, max_backoff=0.6)
    sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=slow)
    first = Seen(first_time(4))
    with sub.pull(first) as stream:
        publish(ps, 30)
        first.until(lambda: (4, 1) in first.by_key["k1"])
        first.wait_for(20)
        assert (4, 2) not in first.by_key["k1"]
        settled_moves = time.monotonic() + PATIENCE
        while not stream.stats.moved:
            assert time.monotonic() < settled_moves
            threading.Event().wait(0.01)
    second = Seen()
    with (
        PubSub.in_memory(MemoryBackend(cluster=cluster)) as other,
        other.subscription("billing").pull(second),
    ):
        second.until(lambda: 28 in second.acked["k1"])
    assert second.by_key["k1"][0] == (4, 2), "attempt and order survive"
    second.in_order()
    assert not second.by_key["k0"], "what was finished isn't delivered again"


def test_two_processes_share_and_keep_the_order(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    seen = Seen(lambda message: int(message.data) % 7 == 0 and message.delivery_attempt < 3)
    with sub.pull(seen):
        publish(ps, 100, keys=10)
        with PubSub.in_memory(MemoryBackend(cluster=cluster)) as other:
            with other.subscription("billing").pull(seen):
                publish(ps, 100, keys=10, first=100)
                seen.wait_for(150)
            seen.until(lambda: sum(len(set(some)) for some in seen.acked.values()) == 200)
        settled(sub, cluster)
    for numbers in seen.acked.values():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first), "a message was acked before an earlier one of its key"


def test_attempts_that_are_used_up_end_in_the_dead_letters(ps: PubSub, cluster: MemoryCluster) -> None:
    ps.create_topic("graves", partitions=3)
    sub = ps.create_subscription(
        "billing",
        "orders",
        message_ordering=True,
        retry=QUICK,
        dead_letter=DeadLetterPolicy(topic="graves", max_attempts=5),
    )
    dead_letter_topics = ps.create_subscription("graves", "graves")
    buried: list[Message] = []
    came = threading.Event()

    def store_dead_letter(message: Message) -> None:
        buried.append(message)
        message.ack()
        came.set()

    seen = Seen(lambda message: int(message.data) == 4)
    with dead_letter_topics.pull(store_dead_letter), sub.pull(seen) as stream:
        publish(ps, 30)
        seen.wait_for(29)
        assert came.wait(PATIENCE)
        assert stream.stats.dead_lettered == 1
        settled(sub, cluster)
    assert [attempt for number, attempt in seen.by_key["k1"] if number == 4] == [1, 2, 3, 4, 5]
    seen.in_order()
    (dead_letter,) = buried
    headers = dict(dead_letter.headers)
    assert dead_letter.data == b"4"
    assert dead_letter.ordering_key == "k1"
    assert headers["ps-dead-subscription"] == b"billing"
    assert headers["ps-dead-attempts"] == b"5"
    assert "ps-retry" not in headers


def raises(message: Message) -> None:
    raise ValueError("no such customer")


def nacks_what_it_caught(message: Message) -> None:
    try:
        raises(message)
    except ValueError:
        message.nack()


def nacks_later(message: Message) -> None:
    threading.Thread(target=nacks_what_it_caught, args=(message,)).start()


def raises_all(messages: list[Message]) -> None:
    raises(messages[0])


@pytest.mark.parametrize("fail", [raises, nacks_what_it_caught, nacks_later, raises_all])
def test_an_exception_is_reported_in_the_dead_letter(ps: PubSub, fail: Callable[[Any], None]) -> None:
    ps.create_topic("graves", partitions=1)
    policy = DeadLetterPolicy(topic="graves", max_attempts=5)
    sub = ps.create_subscription("billing", "orders", retry=QUICK, dead_letter=policy)
    dead_letter_topics = ps.create_subscription("graves", "graves")
    ps.topic("orders").publish(b"x").result(PATIENCE)
    pull = sub.pull_batch if fail is raises_all else sub.pull
    with pull(fail):
        found: list[Message] = []
        until = time.monotonic() + PATIENCE
        while not found:
            assert time.monotonic() < until
            found = dead_letter_topics.receive(1, timeout=1)
    headers = dict(found[0].headers)
    assert headers["ps-dead-error-class"] == b"ValueError"
    assert headers["ps-dead-error"] == b"no such customer"
    found[0].ack()


def test_park_keeps_a_key_and_says_why(ps: PubSub) -> None:
    ps.create_topic("graves", partitions=1)
    policy = DeadLetterPolicy(topic="graves", max_attempts=5, on_exhausted="park")
    sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=QUICK, dead_letter=policy)
    seen = Seen(lambda message: int(message.data) == 1)
    with sub.pull(seen):
        publish(ps, 30)
        seen.wait_for(20)
        seen.until(lambda: (1, 5) in seen.by_key["k1"])
        until = time.monotonic() + PATIENCE
        while not any(each.key == b"k1" and "parked" in each.reason for each in sub.state().blocked):
            assert time.monotonic() < until, sub.state().blocked
            threading.Event().wait(0.01)
    assert [number for number, _ in seen.by_key["k1"]] == [1] * 5


def test_suspects_are_tried_one_at_a_time_over_all_streams_of_a_process(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    publish(ps, 30, keys=10)
    record = MemoryBackend(cluster=cluster).catalog.subscriptions()["billing"]
    # As a killed process leaves the topic, like the process before it.
    noted = ack_map.encode(AckMap(1, (), False, 1, Notes(((0, 1),)), doubt=Doubt(1)), 0)
    with cluster.change():
        for number in range(2):
            place = TopicPartition("orders", number)
            assert cluster.log(place).end, "a partition without messages"
            cluster.group(record.name).offsets[place] = Committed(0, noted)
    lock, running, most = threading.Lock(), [0], [0]
    both, suspects = threading.Event(), [0]

    def handle(message: Message) -> None:
        if message.offset == 0:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
                if running[0] == 2:
                    both.set()
            both.wait(1)
            with lock:
                running[0] -= 1
                suspects[0] += 1
        message.ack()

    with (
        sub.pull(handle) as one,
        PubSub.in_memory(MemoryBackend(cluster=cluster)) as other,
        other.subscription("billing").pull(handle) as two,
    ):
        until = time.monotonic() + PATIENCE
        while suspects[0] < 2:
            assert time.monotonic() < until
            threading.Event().wait(0.01)
        assert one.stats.received
        assert two.stats.received, "both streams must have had a partition, or this shows nothing"
    assert most == [1]
