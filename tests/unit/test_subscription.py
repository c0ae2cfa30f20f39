"""What a user does with handles, over memory: JSON, wrong callbacks, streams whose subscription goes away."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, NotFound, PubSub, PubSubError
from kafka_pubsub.config import SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.subscribe.deletion_watch import Watch, reason_to_end
from tests.support import until
from tests.unit.crashing import another


@pytest.mark.parametrize("pull", ["pull", "pull_batch"])
def test_a_coroutine_function_is_refused_where_nobody_would_await_it(ps: PubSub, pull: str) -> None:
    async def handle(message: Any) -> None: ...

    ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    with pytest.raises(InvalidArgument, match=r"use kafka_pubsub\.aio"):
        getattr(sub, pull)(handle)


def test_all_handles_on_a_subscription_know_the_same_ack_ids(ps: PubSub) -> None:
    ps.create_topic("orders").publish(b"before").result(timeout=10)
    ps.create_subscription("billing", "orders")
    ps.topic("orders").publish(b"after").result(timeout=10)
    (message,) = ps.subscription("billing").receive(1, timeout=10)
    assert message.data == b"after"
    ps.subscription("billing").acknowledge([message.ack_id])
    ps.close()


def test_the_state_reports_lag_and_what_blocks_a_key(ps: PubSub) -> None:
    topic = ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders", message_ordering=True)
    for number in range(3):
        topic.publish(b"%d" % number, ordering_key="k").result(timeout=10)
    (message,) = sub.receive(1, timeout=10)
    state = sub.state()
    assert (state.subscription, state.topic, state.lag, state.in_flight) == ("billing", "orders", 3, 1)
    (blocked,) = state.blocked
    assert (blocked.key, blocked.offset, blocked.waiting) == (b"k", message.offset, 2)


# -- when the subscription goes away ---------------------------------------------------------------------------


def test_deleting_a_subscription_ends_its_streams_with_not_found(ps: PubSub) -> None:
    ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    with sub.pull(lambda message: message.ack()) as stream:
        sub.delete()
        with pytest.raises(NotFound, match="subscription 'billing' was deleted"):
            stream.result(timeout=10)
    ps.create_subscription("billing", "orders")
    with sub.pull(lambda message: message.ack()) as again:
        assert not again.done()


def test_deleting_a_subscription_ends_its_streams_in_other_processes_too(
    ps: PubSub, cluster: MemoryCluster
) -> None:
    ps.create_topic("orders")
    ps.create_subscription("billing", "orders")
    with another(cluster) as elsewhere:
        stream = elsewhere.subscription("billing").pull(lambda message: message.ack())
        ps.delete_subscription("billing")
        with pytest.raises(NotFound, match="subscription 'billing' was deleted"):
            stream.result(timeout=20)
    assert ps.list_subscriptions() == []


def test_deleting_a_topic_ends_the_streams_of_its_subscriptions(ps: PubSub) -> None:
    ps.create_topic("orders")
    stream = ps.create_subscription("billing", "orders").pull(lambda message: message.ack())
    ps.delete_topic("orders")
    with pytest.raises(PubSubError, match="orders"):
        stream.result(timeout=20)


class Subscriber:
    """Notes what it was ended with."""

    def __init__(self, pulling: bool = True) -> None:
        self.pulling = pulling
        self.ended = threading.Event()
        self.error: PubSubError | None = None
        self.records: list[SubscriptionRecord] = []

    def noticed(self, record: SubscriptionRecord) -> None:
        self.records.append(record)

    def end(self, error: PubSubError | None = None) -> None:
        self.error = error
        self.ended.set()


def record(name: str, **fields: Any) -> SubscriptionRecord:
    options = SubscriptionOptions()
    return SubscriptionRecord(name=name, topic="t", topic_id="1", partitions=1, options=options, **fields)


def test_the_watch_ends_what_is_gone_and_nothing_else() -> None:
    gone, going, detached, fine, idle = (
        Subscriber(),
        Subscriber(),
        Subscriber(),
        Subscriber(),
        Subscriber(False),
    )
    watched = {"gone": gone, "going": going, "detached": detached, "fine": fine, "idle": idle}
    records = {
        "going": record("going", state="deleting"),
        "detached": record("detached", detached=True),
        "fine": record("fine"),
    }
    Watch(lambda: records, lambda: watched).look()
    for each, kind in ((gone, NotFound), (going, NotFound), (detached, FailedPrecondition)):
        assert each.ended.wait(10)
        assert isinstance(each.error, kind)
    assert not fine.ended.is_set()
    assert not idle.ended.is_set()
    assert [each.records for each in (gone, going, detached, fine, idle)] == [
        [],
        [],
        [],
        [records["fine"]],
        [],
    ]


def test_the_watch_asks_nothing_while_nobody_receives() -> None:
    def never() -> dict[str, SubscriptionRecord]:
        raise AssertionError("asked")

    Watch(never, lambda: {"idle": Subscriber(False)}).look()


def test_the_watch_survives_a_cluster_that_does_not_answer_and_stops_when_reported() -> None:
    asked = threading.Semaphore(0)

    def unreachable() -> dict[str, SubscriptionRecord]:
        asked.release()
        raise FailedPrecondition("no answer")

    before = set(threading.enumerate())
    subscriber = Subscriber()
    watch = Watch(unreachable, lambda: {"s": subscriber}, interval=0.001)
    watch.start()
    watch.start()
    for _ in range(3):
        assert asked.acquire(timeout=10)
    watch.stop()
    assert not subscriber.ended.is_set()
    until(lambda: not any(each.name == "kafka_pubsub-watch" for each in {*threading.enumerate()} - before))


def test_a_subscription_that_is_there_gives_no_reason_to_end() -> None:
    assert reason_to_end("s", record("s")) is None
    assert reason_to_end("s", record("s", state="creating")) is None


def test_a_backend_of_its_own_is_made_for_each_memory() -> None:
    with PubSub.in_memory() as one, PubSub.in_memory() as other:
        one.create_topic("orders")
        assert other.list_topics() == []
    backend = MemoryBackend()
    with PubSub.in_memory(backend) as one, PubSub.in_memory(MemoryBackend(cluster=backend.cluster)) as other:
        one.create_topic("orders")
        assert [topic.name for topic in other.list_topics()] == ["orders"]
