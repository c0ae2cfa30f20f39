"""Changing a topic's partitions (I12): what is refused, what is waited for, and going on after a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest

from kafka_pubsub import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    Message,
    NotFound,
    PubSub,
    RepartitionProgress,
)
from kafka_pubsub.administration import manage_subscriptions, manage_topics
from kafka_pubsub.config import Repartition
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.publish import writer_pool
from kafka_pubsub.repartition.repartition import FENCE, Repartitioner
from kafka_pubsub.subscribe.admin.subscriptions import GROW_TIMEOUT
from kafka_pubsub.subscribe.formats.record import RetryInfo, retry_headers
from tests.support import until
from tests.unit.crashing import Crash, CrashAt, FailAt, another

RETRY = "orders.sub.billing.retry"


class Time:
    """A clock that only sleeping moves; `during` runs at each sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.during: Callable[[], object] = lambda: None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.during()


@pytest.fixture
def time() -> Time:
    return Time()


def repartitioner(
    cluster: MemoryCluster, time: Time, faults: FaultPlan | None = None, **options: Any
) -> Repartitioner:
    backend = MemoryBackend(cluster=cluster, faults=faults)
    topics = manage_topics(backend, may_create=True)
    return Repartitioner(
        backend, topics, **{"may_create": True, "clock": time.clock, "sleep": time.sleep, **options}
    )


@pytest.fixture
def change(cluster: MemoryCluster, time: Time) -> Repartitioner:
    """Changes layouts as another process."""
    return repartitioner(cluster, time)


@pytest.fixture
def orders(ps: PubSub) -> None:
    ps.create_topic("orders", partitions=2)
    ps.create_subscription("billing", "orders", message_ordering=True)


def commit(backend: MemoryBackend, positions: dict[TopicPartition, int]) -> None:
    backend.admin.set_positions("billing", positions)


def home(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def retry(number: int) -> TopicPartition:
    return TopicPartition(RETRY, number)


def counts(backend: MemoryBackend) -> tuple[int, int, int, int]:
    """Kafka's topics, and what the catalog says of topic and subscription."""
    record = backend.catalog.subscriptions()["billing"]
    return (
        backend.admin.topic("orders").partitions,
        backend.admin.topic(RETRY).partitions,
        backend.catalog.topics()["orders"].options.partitions,
        record.partitions,
    )


# -- the whole way -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
def test_home_retry_and_catalog_get_the_new_number(
    change: Repartitioner, backend: MemoryBackend, time: Time
) -> None:
    seen: list[RepartitionProgress] = []
    record = change.run("orders", 5, on_progress=seen.append)
    assert (record.options.partitions, record.repartition) == (5, None)
    assert counts(backend) == (5, 5, 5, 5)
    made = backend.catalog.subscriptions()["billing"]
    assert made.positions == dict.fromkeys(range(5), 0)
    assert made.retry_topic is not None
    assert made.retry_topic.positions == dict.fromkeys(range(5), 0)
    assert time.now >= FENCE
    assert [each.phase for each in seen] == sorted(
        (each.phase for each in seen), key=["fencing", "draining", "growing"].index
    )
    assert {each.phase for each in seen} == {"fencing", "draining", "growing"}


@pytest.mark.usefixtures("orders")
def test_everybody_receives_what_is_published_afterwards(
    ps: PubSub, cluster: MemoryCluster, time: Time
) -> None:
    got: list[Message] = []

    def handle(message: Message) -> None:
        got.append(message)
        message.ack()

    with another(cluster) as publisher, ps.subscription("billing").pull(handle) as stream:
        topic = publisher.topic("orders")
        topic.publish(b"0", ordering_key="k").result(10)
        # In real time: the stream's commits are.
        repartitioner(cluster, time, fence=0, sleep=threading.Event().wait).run("orders", 7)
        publisher.topic("orders")._publishers["orders"].look_again()
        keys = [f"key-{number}" for number in range(50)]
        for key in keys:
            topic.publish(b"1", ordering_key=key).result(10)
        ids = {topic.publish(b"2", ordering_key=key).result(10): key for key in keys}
        until(lambda: len(got) == 101)
        assert not stream.done()
    assert {message_id: int(message_id.split(":")[1]) for message_id in ids} == {
        message_id: partition_of(key.encode(), 7) for message_id, key in ids.items()
    }


# -- what is refused meanwhile -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
def test_keys_are_refused_while_it_goes_on_and_the_error_says_how_to_finish(
    ps: PubSub, cluster: MemoryCluster, change: Repartitioner, time: Time
) -> None:
    refused: list[str] = []

    def publish() -> None:
        with another(cluster) as late:
            topic = late.topic("orders")
            assert topic.publish(b"x").result(10)
            for call in (
                lambda: topic.publish(b"x", ordering_key="k"),
                lambda: late.create_subscription("shipping", "orders"),
            ):
                with pytest.raises(FailedPrecondition, match="is being repartitioned from 2 to 5") as caught:
                    call()
                refused.append(caught.value.message)
        time.during = lambda: None

    time.during = publish
    change.run("orders", 5)
    assert len(refused) == 2
    assert "repartition_topic('orders', partitions=5)" in refused[0]
    assert ps.topic("orders").publish(b"x", ordering_key="k").result(10)


@pytest.mark.usefixtures("orders")
def test_a_publisher_that_was_silent_looks_before_its_next_message(
    ps: PubSub, cluster: MemoryCluster, backend: MemoryBackend
) -> None:
    with another(cluster) as other:
        topic = other.topic("orders")
        topic.publish(b"x", ordering_key="k").result(10)
        publisher = topic._publishers["orders"]
        publisher.renew()
        publisher.renew()
        announce(backend)
        with pytest.raises(FailedPrecondition, match="being repartitioned"):
            topic.publish(b"x", ordering_key="k")


def announce(backend: MemoryBackend, phase: Literal["fencing", "growing"] = "fencing") -> None:
    record = backend.catalog.topics()["orders"]
    after = record.model_copy(update={"repartition": Repartition(partitions=5, phase=phase)})
    backend.catalog.put_topic(after, record)


@pytest.mark.usefixtures("orders")
def test_the_fence_waits_for_two_looks_of_every_publisher() -> None:
    assert FENCE >= 2 * writer_pool.RENEW_S


@pytest.mark.usefixtures("orders")
def test_keys_wait_until_the_connection_knows_the_new_partitions(
    cluster: MemoryCluster, change: Repartitioner
) -> None:
    faults = Relearning()
    with another(cluster, faults) as other:
        topic = other.topic("orders")
        topic.publish(b"x").result(10)
        change.run("orders", 5)
        topic._publishers["orders"].look_again()
        with pytest.raises(FailedPrecondition, match="connection doesn't know yet"):
            topic.publish(b"x", ordering_key="k")
        assert topic.publish(b"x").result(10)
        faults.reachable = True
        topic._publishers["orders"].look_again()
        message_id = topic.publish(b"x", ordering_key="k").result(10)
        assert message_id.split(":")[1] == str(partition_of(b"k", 5))
        assert faults.asked >= 2


class Relearning(FaultPlan):
    """A connection on which nobody answers how many partitions there are."""

    def __init__(self) -> None:
        self.reachable = False
        self.asked = 0

    def request(self, operation: str, name: str) -> BrokerUnavailable | None:
        if operation != "relearn":
            return None
        self.asked += 1
        return None if self.reachable else BrokerUnavailable("no answer")


# -- draining ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
def test_it_waits_for_an_ordered_subscription_and_says_for_what(
    ps: PubSub, change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster, time: Time
) -> None:
    for number in (0, 0, 1):
        cluster.append("orders", number, b"x", b"k")
    with pytest.raises(DeadlineExceeded, match=r"'billing' \(3 messages, no process receives\)") as caught:
        change.run("orders", 5, timeout=FENCE + 10)
    assert "repartition_topic('orders', partitions=5) goes on" in caught.value.message
    assert "repartition_topic('orders', partitions=2) gives it up" in caught.value.message
    assert counts(backend) == (2, 2, 2, 2)
    commit(backend, {home(0): 2, home(1): 1})
    begun = time.now
    change.run("orders", 5)
    assert time.now - begun < FENCE, "the fence was waited for already"
    assert counts(backend) == (5, 5, 5, 5)


@pytest.mark.usefixtures("orders")
def test_what_publishers_store_before_they_have_looked_is_waited_for(
    change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster, time: Time
) -> None:
    def late() -> None:
        if time.now < writer_pool.RENEW_S:
            cluster.append("orders", 1, b"x", b"k")

    time.during = late
    with pytest.raises(DeadlineExceeded, match="'billing'"):
        change.run("orders", 5, timeout=FENCE + 10)
    commit(backend, {home(1): backend.admin.last_stable_offsets("orders")[1]})
    change.run("orders", 5)


@pytest.mark.usefixtures("orders")
def test_it_can_be_given_up_until_the_topic_grows(
    ps: PubSub, change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    cluster.append("orders", 0, b"x", b"k")
    with pytest.raises(DeadlineExceeded):
        change.run("orders", 5, timeout=FENCE + 10)
    with pytest.raises(FailedPrecondition, match=r"being given 5 partitions already.*gives it up"):
        change.run("orders", 7)
    assert change.run("orders", 2).repartition is None
    assert ps.topic("orders").publish(b"x", ordering_key="k").result(10)
    announce(backend, "growing")
    with pytest.raises(FailedPrecondition, match=r"goes on with that$"):
        change.run("orders", 2)


@pytest.mark.usefixtures("orders")
def test_what_was_given_up_elsewhere_ends_here(
    change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster, time: Time
) -> None:
    def give_up() -> None:
        time.during = lambda: None
        repartitioner(cluster, time).run("orders", 2)

    time.during = give_up
    with pytest.raises(FailedPrecondition, match="given up by another client; it has 2"):
        change.run("orders", 5)
    assert counts(backend) == (2, 2, 2, 2)


@pytest.mark.usefixtures("orders")
def test_it_waits_for_what_is_parked(
    change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    cluster.append("orders", 1, b"parked", b"k")
    topic_id = backend.catalog.topics()["orders"].topic_id
    cluster.append(RETRY, 1, b"parked", b"k", retry_headers(None, RetryInfo(topic_id, 1, 0)))
    commit(backend, {home(1): 1})
    with pytest.raises(DeadlineExceeded, match=r"'billing' \(1 message, no process receives\)"):
        change.run("orders", 5, timeout=FENCE + 10)
    commit(backend, {retry(1): 1})
    change.run("orders", 5)


@pytest.mark.usefixtures("orders")
def test_messages_without_a_key_and_holes_are_not_waited_for(
    change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    cluster.append("orders", 0, b"x")
    cluster.skip_offsets("orders", 1, 3)
    cluster.append(RETRY, 0, b"x")
    cluster.skip_offsets(RETRY, 0)
    change.run("orders", 5)
    assert counts(backend) == (5, 5, 5, 5)


def test_subscriptions_without_order_are_not_waited_for_but_carried_over(
    ps: PubSub, change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    ps.create_topic("orders", partitions=2)
    ps.create_subscription("billing", "orders")
    cluster.append("orders", 0, b"x", b"k")
    change.run("orders", 5)
    assert counts(backend) == (5, 5, 5, 5)


@pytest.mark.usefixtures("orders")
def test_what_is_published_behind_the_barrier_is_not_waited_for(
    change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    cluster.append("orders", 0, b"x", b"k")
    with pytest.raises(DeadlineExceeded):
        change.run("orders", 5, timeout=FENCE + 10)
    commit(backend, {home(0): 1})
    cluster.append("orders", 0, b"no key: anybody may go on")
    cluster.append("orders", 1, b"nor this one")
    change.run("orders", 5)


# -- by whom ever ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
def test_a_topic_that_somebody_else_has_grown_is_drained_and_taken(
    ps: PubSub, change: Repartitioner, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    cluster.append("orders", 0, b"old", b"k")
    cluster.add_partitions("orders", 4)
    with pytest.raises(FailedPrecondition, match=r"repartition_topic\('orders', partitions=4\)"):
        ps.subscription("billing").pull(print)
    with pytest.raises(InvalidArgument, match="has 4 partitions, and Kafka takes none away"):
        change.run("orders", 3)
    with pytest.raises(DeadlineExceeded):
        change.run("orders", 4, timeout=FENCE + 10)
    assert counts(backend) == (4, 4, 2, 2)
    ps.subscription("billing").pull(lambda message: None).close()
    commit(backend, {home(0): 1})
    change.run("orders", 4)
    assert counts(backend) == (4, 4, 4, 4)


@pytest.mark.parametrize("partitions", [0, -1, 10_001, 2.0, "5", True, None])
@pytest.mark.usefixtures("orders")
def test_a_number_that_cannot_be_is_refused(change: Repartitioner, partitions: Any) -> None:
    with pytest.raises(InvalidArgument, match="partitions must be a whole number from 1 to 10000"):
        change.run("orders", partitions)


@pytest.mark.usefixtures("orders")
def test_the_number_that_it_has_is_done_at_once(change: Repartitioner, time: Time) -> None:
    assert change.run("orders", 2).options.partitions == 2
    assert time.now == 0
    with pytest.raises(InvalidArgument, match="has 2 partitions, and Kafka takes none away"):
        change.run("orders", 1)
    with pytest.raises(NotFound, match="'nowhere' not found"):
        change.run("nowhere", 3)


@pytest.mark.usefixtures("orders")
def test_without_the_right_to_create_an_operator_adds_the_partitions(
    cluster: MemoryCluster, backend: MemoryBackend, time: Time
) -> None:
    modest = repartitioner(cluster, time, may_create=False)
    with pytest.raises(FailedPrecondition, match=f"'orders', '{RETRY}' given 5 partitions"):
        modest.run("orders", 5)
    cluster.add_partitions("orders", 5)
    cluster.add_partitions(RETRY, 5)
    modest.run("orders", 5)
    assert counts(backend) == (5, 5, 5, 5)


@pytest.mark.usefixtures("orders")
def test_two_that_do_the_same_both_get_through(
    change: Repartitioner, cluster: MemoryCluster, backend: MemoryBackend, time: Time
) -> None:
    def beside() -> None:
        time.during = lambda: None
        repartitioner(cluster, Time()).run("orders", 5)

    time.during = beside
    assert change.run("orders", 5).options.partitions == 5
    assert counts(backend) == (5, 5, 5, 5)


def crash_points() -> int:
    cluster = MemoryBackend().cluster
    plan = CrashAt(-1)
    with another(cluster) as ps:
        ps.create_topic("orders", partitions=2)
        ps.create_subscription("billing", "orders", message_ordering=True)
    repartitioner(cluster, Time(), plan, fence=0).run("orders", 5)
    return len(plan.seen)


@pytest.mark.parametrize("at", range(crash_points()))
@pytest.mark.usefixtures("orders")
def test_a_crash_anywhere_is_gone_on_from(
    cluster: MemoryCluster, backend: MemoryBackend, time: Time, at: int
) -> None:
    with pytest.raises(Crash):
        repartitioner(cluster, time, CrashAt(at), fence=0).run("orders", 5)
    record = repartitioner(cluster, time, fence=0).run("orders", 5)
    assert (record.options.partitions, record.repartition) == (5, None)
    assert counts(backend) == (5, 5, 5, 5)


# -- growing -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
def test_nobody_begins_to_receive_while_it_grows(backend: MemoryBackend, time: Time) -> None:
    announce(backend, "growing")
    topics = manage_topics(backend, may_create=True)
    admin = manage_subscriptions(backend, topics, may_create=True, sleep=time.sleep)
    with pytest.raises(FailedPrecondition, match="half way between 2 and 5 partitions"):
        admin.usable("billing")
    assert time.now >= GROW_TIMEOUT
    time.during = lambda: repartitioner(backend.cluster, Time()).run("orders", 5)
    assert admin.usable("billing").partitions == 5


@pytest.mark.usefixtures("orders")
def test_a_subscription_that_is_made_while_it_begins_is_not_left_behind(
    cluster: MemoryCluster, backend: MemoryBackend
) -> None:
    racing = FailAt("set_positions", None, before=lambda: announce(backend))
    with (
        another(cluster, racing) as late,
        pytest.raises(FailedPrecondition, match="being repartitioned"),
    ):
        late.create_subscription("shipping", "orders")
    assert backend.catalog.subscriptions()["shipping"].state == "creating"


@pytest.mark.usefixtures("orders")
def test_an_older_subscription_gets_no_retry_topic_meanwhile(ps: PubSub, backend: MemoryBackend) -> None:
    record = backend.catalog.subscriptions()["billing"]
    backend.catalog.put_subscription(record.model_copy(update={"retry_topic": None}), record)
    announce(backend)
    with pytest.raises(FailedPrecondition, match="topic 'orders' is being repartitioned"):
        ps.create_subscription("billing", "orders", exist_ok=True)
