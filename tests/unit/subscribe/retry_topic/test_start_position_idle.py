"""A group that was idle for so long that the broker has forgotten its positions, while messages waited for a retry."""

from __future__ import annotations

import pytest

from kafka_pubsub import FailedPrecondition, Message, PubSub, RetryPolicy
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

RETRY = "orders.sub.billing.retry"
#: Seconds that a nacked message waits here: longer than it takes to close the stream.
LATER = 3.0


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryBackend().cluster


def leave_some_waiting(cluster: MemoryCluster) -> set[int]:
    """Publishes, nacks a single message and closes; returns what was acked."""
    acked: set[int] = set()

    def handle(message: Message) -> None:
        if int(message.data) == 4:
            message.nack(delay=LATER)
        else:
            acked.add(int(message.data))
            message.ack()

    with PubSub.in_memory(MemoryBackend(cluster=cluster)) as ps:
        ps.create_topic("orders", partitions=2)
        sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=RetryPolicy())
        for at in range(30):
            ps.topic("orders").publish(b"%d" % at, ordering_key=f"k{at % 3}").result(PATIENCE)
        with sub.pull(handle) as stream:
            until(lambda: len(acked) == 21 and stream.stats.moved)
    return acked


def test_what_waits_comes_from_the_copy_and_in_order(cluster: MemoryCluster) -> None:
    acked = leave_some_waiting(cluster)
    backend = MemoryBackend(cluster=cluster)
    stored = backend.admin.group_offsets("billing", RETRY)
    retry = backend.catalog.subscriptions()["billing"].retry_topic
    assert retry is not None
    assert retry.positions == {number: each.offset for number, each in stored.items()}
    cluster.forget_offsets("billing")
    seen: list[tuple[int, int]] = []

    def handle(message: Message) -> None:
        seen.append((int(message.data), message.delivery_attempt))
        message.ack()

    with PubSub.in_memory(MemoryBackend(cluster=cluster)) as ps:
        sub = ps.subscription("billing")
        with sub.pull(handle):
            until(lambda: acked | {number for number, _ in seen} == set(range(30)))
            until(lambda: sub.state().lag == 0)
    assert (4, 2) in seen, "how often it was tried is in the retry topic, not in the group"
    begun = list(dict.fromkeys(number for number, _ in seen if number % 3 == 1 and number >= 4))
    assert begun == sorted(begun)


def test_without_a_copy_it_is_refused_and_never_guessed(cluster: MemoryCluster) -> None:
    leave_some_waiting(cluster)
    catalog = MemoryBackend(cluster=cluster).catalog
    record = catalog.subscriptions()["billing"]
    assert record.retry_topic is not None
    lost = record.retry_topic.model_copy(update={"positions": {}})
    catalog.put_subscription(record.model_copy(update={"retry_topic": lost}), record)
    cluster.forget_offsets("billing")
    with (
        PubSub.in_memory(MemoryBackend(cluster=cluster)) as ps,
        ps.subscription("billing").pull(lambda message: message.ack()) as stream,
        pytest.raises(FailedPrecondition, match=r"has no position in partition 0 of topic 'orders\.sub"),
    ):
        stream.result(PATIENCE)
