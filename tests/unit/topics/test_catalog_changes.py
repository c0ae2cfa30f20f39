"""Several processes that make the same at once, one makes it, the others hear that it exists; and what shows late."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from kafka_pubsub import AlreadyExists, PubSub, PubSubError
from kafka_pubsub.administration import manage_subscriptions, manage_topics
from kafka_pubsub.config import SubscriptionOptions, TopicOptions
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.topics.catalog_changes import STANDS
from tests.unit.crashing import Crash, CrashBefore, FailAt, another


class Before(FaultPlan):
    """Somebody else does something before each request of that name."""

    def __init__(self, operation: str, act: Callable[[], object]) -> None:
        self._operation, self._act = operation, act

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation == self._operation:
            self._act()
        return None


def subscribe(cluster: MemoryCluster, faults: FaultPlan, sleep: Callable[[float], None]) -> None:
    backend = MemoryBackend(cluster=cluster, faults=faults)
    admin = manage_subscriptions(
        backend, manage_topics(backend, may_create=True), may_create=True, sleep=sleep
    )
    admin.create("billing", "orders", SubscriptionOptions(), exist_ok=False)


def make_topic(cluster: MemoryCluster, faults: FaultPlan, sleep: Callable[[float], None]) -> None:
    backend = MemoryBackend(cluster=cluster, faults=faults)
    manage_topics(backend, may_create=True, sleep=sleep).create("new", TopicOptions(), exist_ok=False)


SUBSCRIPTION = (
    subscribe,
    lambda ps: ps.create_subscription("billing", "orders"),
    "put_subscription",
    "set_positions",
)
TOPIC = (make_topic, lambda ps: ps.create_topic("new"), "put_topic", "create_topic")


@pytest.mark.parametrize(
    ("make", "rival", "put", "step"), [SUBSCRIPTION, TOPIC], ids=["subscription", "topic"]
)
def test_who_is_overtaken_each_time_waits_for_the_others_and_hears_that_it_exists(
    cluster: MemoryCluster,
    ps: PubSub,
    make: Callable[[MemoryCluster, FaultPlan, Callable[[float], None]], None],
    rival: Callable[[PubSub], object],
    put: str,
    step: str,
) -> None:
    ps.create_topic("orders")

    def overtake() -> None:
        with another(cluster, CrashBefore(step)) as half, contextlib.suppress(Crash):
            rival(half)

    def finish(seconds: float) -> None:
        rival(ps)

    with pytest.raises(AlreadyExists):
        make(cluster, Before(put, overtake), finish)


def test_what_the_others_have_left_half_made_is_finished_after_a_while(
    cluster: MemoryCluster, ps: PubSub
) -> None:
    ps.create_topic("orders")

    def overtake() -> None:
        with another(cluster, CrashBefore("set_positions")) as half, contextlib.suppress(Crash):
            half.create_subscription("billing", "orders")

    slept: list[float] = []
    subscribe(cluster, FailAt("put_subscription", None, overtake), slept.append)
    assert STANDS <= sum(slept) < STANDS + 1
    assert [each.name for each in ps.list_subscriptions()] == ["billing"]


@pytest.mark.parametrize("step", ["group_members", "last_stable_offsets"])
def test_who_comes_late_moves_no_position_and_hears_that_it_exists(
    cluster: MemoryCluster, backend: MemoryBackend, ps: PubSub, step: str
) -> None:
    ps.create_topic("orders", partitions=1)

    def faster() -> None:
        with contextlib.suppress(AlreadyExists):
            ps.create_subscription("billing", "orders")
            ps.topic("orders").publish(b"1").result(10)

    with pytest.raises(AlreadyExists):
        subscribe(cluster, FailAt(step, None, faster), lambda seconds: None)
    assert backend.admin.group_offsets("billing", "orders")[0].offset == 0
    (message,) = ps.subscription("billing").receive(1, timeout=10)
    assert message.data == b"1"


def test_a_topic_that_somebody_makes_between_two_looks_is_no_strangers(
    cluster: MemoryCluster, ps: PubSub
) -> None:
    with another(cluster, FailAt("topic", None, lambda: ps.create_topic("new"))) as slower:
        assert slower.create_topic("new", exist_ok=True).name == "new"


def test_a_topic_that_its_broker_does_not_know_yet_is_adopted_a_moment_later(backend: MemoryBackend) -> None:
    def appear(seconds: float) -> None:
        backend.admin.create_topic("new", 1, None, {})

    topics = manage_topics(backend, may_create=True, sleep=appear)
    assert topics.adopt("new", TopicOptions(), exist_ok=False).adopted
