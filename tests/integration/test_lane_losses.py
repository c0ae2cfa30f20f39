"""The messages that a subscriber of lanes misses when brokers are killed: none durable, and the others are counted.

Three brokers, killed with SIGKILL. A transient message is lost in two ways: the client gives it up (its future fails),
or its leader dies before another replica has it, though its future has resolved. Each test says which may happen.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from kafka_pubsub import Message, PubSub, Topic
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.cluster_view import PartitionView, cluster_view
from tests.local_cluster import LocalCluster
from tests.support import until

PATIENCE = 120.0
#: A message is given up within two seconds; beyond that no missing message is due to a leader's death.
AROUND = 3.0
#: Seconds without a message that mean that none will come; a member that lost its coordinator comes back sooner.
QUIET = 10.0


@pytest.fixture(scope="module")
def cluster(kafka: RunningKafka) -> Iterator[LocalCluster]:
    """After `kafka`, which skips when there can be none."""
    with LocalCluster(3) as cluster:
        yield cluster


@pytest.fixture
def ps(cluster: LocalCluster) -> Iterator[PubSub]:
    cluster.start()
    cluster.wait_in_sync(PATIENCE)
    with PubSub(cluster.bootstrap) as ps:
        yield ps


@pytest.fixture
def name() -> str:
    return f"x-{uuid.uuid4().hex[:12]}"


def partition_of(cluster: LocalCluster, topic: str) -> PartitionView:
    """Partition 0 of a topic, once all running brokers see the same leader."""
    found: list[PartitionView] = []

    def agreed() -> bool:
        found[:] = _seen(cluster, topic)
        return bool(found) and len({(each.leader, each.replicas) for each in found}) == 1

    until(agreed, f"one leader of {topic}", PATIENCE)
    return found[0]


def _seen(cluster: LocalCluster, topic: str) -> Iterator[PartitionView]:
    for node, settings in cluster._started().items():
        view = cluster_view(settings.port) if cluster.running(node) else None
        if view is not None:
            yield from (each for each in view.partitions if (each.topic, each.number) == (topic, 0))


class Traffic:
    """Publishes numbered messages and notes when each future resolved."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.sent: dict[bool, list[int]] = {True: [], False: []}
        self.stored: dict[int, float] = {}
        self.failed: dict[int, BaseException] = {}
        self._next = 0

    def send(self, *, durable: bool) -> int:
        number = self._next
        self._next += 1
        future = self._topic.publish(b"%d" % number, ordering_key=f"k{number % 5}", durable=durable)
        self.sent[durable].append(number)
        future.add_done_callback(lambda done: self._note(number, done))
        return number

    def _note(self, number: int, done: Future[str]) -> None:
        error = done.exception()
        if error is None:
            self.stored[number] = time.monotonic()
        else:
            self.failed[number] = error

    @property
    def answered(self) -> int:
        return len(self.stored) + len(self.failed)


class Seen:
    """The numbers that came, in the order of the callbacks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.numbers: list[int] = []

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.numbers.append(int(message.data))
        message.ack()

    def by_key(self, numbers: set[int]) -> dict[int, list[int]]:
        """The first delivery of each of these, by key."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for number in dict.fromkeys(self.numbers):
            if number in numbers:
                found[number % 5].append(number)
        return found


def nothing_more(seen: Seen) -> None:
    """Waits until no message has come for a while. The lag isn't asked for: the group's coordinator may be away."""
    mark = [0.0, 0.0]

    def quiet() -> bool:
        count, now = len(seen.numbers), time.monotonic()
        if count != mark[0]:
            mark[:] = count, now
        return now - mark[1] > QUIET

    until(quiet, "the end of the messages", PATIENCE)


def judge(traffic: Traffic, seen: Seen) -> set[int]:
    """Judges the promises that hold in any case; returns the transient messages that resolved and didn't come."""
    durable, transient = (set(traffic.sent[each]) for each in (True, False))
    came = set(seen.numbers)
    assert traffic.failed.keys() <= transient, "a durable message failed"
    assert durable <= came, "a durable message is missing"
    assert came <= durable | transient
    assert all("given up" in str(error) for error in traffic.failed.values())
    for some in (durable, transient):
        for key, numbers in seen.by_key(some).items():
            assert numbers == sorted(numbers), f"key k{key} came as {numbers}"
    return transient - came - traffic.failed.keys()


@pytest.mark.timeout(4 * PATIENCE)
def test_a_leader_that_is_killed_costs_transient_messages_around_its_death_only(
    cluster: LocalCluster, ps: PubSub, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = ps.create_topic(name, partitions=3, transient=True)
    sub = ps.create_subscription(name, topic, message_ordering=True)
    traffic, seen, stop = Traffic(topic), Seen(), threading.Event()

    def publish() -> None:
        while not stop.wait(0.004):
            traffic.send(durable=len(traffic.sent[True]) <= len(traffic.sent[False]))

    publisher = threading.Thread(target=publish)
    kills: list[float] = []
    with sub.pull(seen) as stream:
        publisher.start()
        try:
            until(lambda: len(seen.numbers) > 200)
            for _ in range(2):
                node = partition_of(cluster, f"{name}.lane.t0").leader
                kills.append(time.monotonic())
                cluster.kill(node)
                time.sleep(3)
                cluster.start(node)
                cluster.wait_in_sync(PATIENCE)
                before = len(seen.numbers)
                until(lambda before=before: len(seen.numbers) > before + 200)  # type: ignore[misc]
        finally:
            stop.set()
            publisher.join(PATIENCE)
        until(lambda: traffic.answered == sum(map(len, traffic.sent.values())), "all answers", PATIENCE)
        nothing_more(seen)
        assert not stream.done(), "the stream has ended"
    lost = judge(traffic, seen)
    with capsys.disabled():
        print(
            f"\n{len(traffic.sent[False])} transient messages, {len(traffic.failed)} given up (of which "
            f"{len(traffic.failed.keys() & set(seen.numbers))} came), {len(lost)} lost with their leader"
        )
    assert topic.given_up == len(traffic.failed)
    assert all(any(abs(traffic.stored[each] - kill) < AROUND for kill in kills) for each in lost)
    assert len(seen.numbers) > 0.5 * sum(map(len, traffic.sent.values()))


@pytest.mark.timeout(4 * PATIENCE)
def test_what_only_the_dead_leader_had_is_lost_and_nothing_else(
    cluster: LocalCluster, ps: PubSub, name: str
) -> None:
    """The other replica stands still when the last messages come, and becomes the leader when the first is killed."""
    topic = ps.create_topic(name, partitions=1, transient=True, replication=2)
    lane = f"{name}.lane.t0"
    sub = ps.create_subscription(name, topic, message_ordering=True)
    traffic, seen = Traffic(topic), Seen()
    for durable in (True, False):
        traffic.send(durable=durable)
    until(lambda: traffic.answered == 2)
    place = partition_of(cluster, lane)
    (follower,) = place.replicas - {place.leader}
    with sub.pull(seen) as stream:
        for number in range(40):
            traffic.send(durable=number % 2 == 0)
        until(lambda: len(seen.numbers) == 42)
        cluster.pause(follower)
        doomed = [traffic.send(durable=False) for _ in range(20)]
        until(lambda: set(doomed) <= traffic.stored.keys() | traffic.failed.keys())
        cluster.kill(place.leader)
        cluster.cont(follower)
        resolved = set(doomed) & traffic.stored.keys()
        assert resolved, "the leader had no time to answer"
        waiting = [traffic.send(durable=True) for _ in range(20)]
        until(lambda: partition_of(cluster, lane).leader == follower, patience=PATIENCE)
        cluster.start(place.leader)
        cluster.wait_in_sync(PATIENCE)
        later = [traffic.send(durable=False) for _ in range(20)]
        until(lambda: traffic.answered == sum(map(len, traffic.sent.values())), "all answers", PATIENCE)
        until(lambda: {*waiting, *later} - traffic.failed.keys() <= set(seen.numbers), patience=PATIENCE)
        nothing_more(seen)
        assert not stream.done(), "the stream has ended"
    # The follower may have had some of them in the socket already when it was frozen.
    assert judge(traffic, seen) <= resolved
