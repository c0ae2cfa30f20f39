"""What a change of layout still waits for: every message with a key that isn't finished, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.model import Committed, Header, TopicPartition
from kafka_pubsub.repartition.drain import LOOK_AT, NAMED, Drain, UnreadableRecord
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.record import RetryInfo, retry_headers
from tests.unit.crashing import checkpointed

RETRY = "orders.sub.billing.retry"


@pytest.fixture
def record(ps: PubSub, backend: MemoryBackend) -> SubscriptionRecord:
    ps.create_topic("orders", partitions=2)
    ps.create_subscription("billing", "orders", message_ordering=True)
    return backend.catalog.subscriptions()["billing"]


@pytest.fixture
def drain(backend: MemoryBackend) -> Iterator[Drain]:
    made = Drain(backend)
    yield made
    made.close()


def test_the_map_above_the_position_counts(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    for _ in range(5):
        cluster.append("orders", 0, b"x", b"k")
    assert drain.left(record, {0: 5}) == 5
    with cluster.change():
        written = Committed(1, ack_map.encode(AckMap(7, ((2, 4),)), 1))
        assert cluster.group("billing").store(TopicPartition("orders", 0), written) is None
    assert drain.left(record, {0: 5}) == 2
    assert drain.left(record, {0: 4}) == 1
    assert drain.left(record, {0: 1, 1: 0}) == 0


def test_an_open_transaction_and_a_long_backlog_count_as_messages(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    cluster.append("orders", 0, b"x", b"k", transaction="t")
    assert drain.left(record, {0: 1}) == 1
    cluster.finish_transaction("orders", 0, "t", committed=False)
    assert drain.left(record, {0: 2}) == 0
    for _ in range(LOOK_AT + 1):
        cluster.append("orders", 1, b"no key, but too many to look at")
    assert drain.left(record, {1: LOOK_AT + 1}) == LOOK_AT + 1


def test_a_message_that_moves_to_the_tail_meanwhile_is_seen_there(
    record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    cluster.append(RETRY, 0, b"parked", b"k")

    class Moves(FaultPlan):
        """Between two looks the owner moves the message, finishes its old place and trims that."""

        def request(self, operation: str, name: str) -> None:
            if operation == "high_watermarks":
                cluster.append(RETRY, 0, b"parked", b"k")
                with cluster.change():
                    cluster.group("billing").store(TopicPartition(RETRY, 0), Committed(1, ""))
                cluster.truncate(RETRY, 0, 1)

    drain = Drain(MemoryBackend(cluster=cluster, faults=Moves()))
    assert drain.left(record, {0: 0, 1: 0}) == 1
    drain.close()


def test_a_damaged_map_counts_for_nothing(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    for _ in range(3):
        cluster.append("orders", 0, b"x", b"k")
    with cluster.change():
        cluster.group("billing").store(TopicPartition("orders", 0), Committed(1, "not a map"))
    assert drain.left(record, {0: 3}) == 2


def waiting(record: SubscriptionRecord, origin: int) -> list[Header]:
    return retry_headers(None, RetryInfo(record.topic_id, 0, origin))


def test_what_is_no_message_is_reported_apart(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    for _ in range(3):
        cluster.append("orders", 0, b"x", b"k")
    with cluster.change():
        cluster.group("billing").store(TopicPartition("orders", 0), Committed(3, ""))
    cluster.append(RETRY, 0, b"rubbish", b"k")
    cluster.append(RETRY, 0, b"rubbish that holds nobody up")
    cluster.append(RETRY, 0, b"forged", b"k", waiting(record, 3))
    found = drain.look(record, {0: 3})
    assert (found.total, found.unreadable, found.stuck) == (2, 2, True)
    reasons = [
        "it has 0 ps-retry headers instead of one",
        "its origin, offset 3, lies beyond the end of orders, 3",
    ]
    assert found.named == [
        UnreadableRecord(RETRY, 0, at, why) for at, why in zip([0, 2], reasons, strict=True)
    ]
    cluster.append(RETRY, 0, b"honest", b"k", waiting(record, 2))
    found = drain.look(record, {0: 3})
    assert (found.total, found.unreadable, found.stuck) == (3, 2, False)


def test_a_message_beyond_the_barrier_is_one(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    cluster.append("orders", 0, b"x", b"k")
    cluster.append(RETRY, 0, b"honest", b"k", waiting(record, 0))
    assert drain.look(record, {0: 0}).unreadable == 0


def test_thousands_that_nobody_can_read_are_seen_through(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    for _ in range(2 * LOOK_AT + 1):
        cluster.append(RETRY, 0, b"rubbish", b"k")
    found = drain.look(record, {0: 0})
    assert (found.total, found.stuck, len(found.named)) == (2 * LOOK_AT + 1, True, NAMED)
    cluster.append("orders", 0, b"x", b"k")
    cluster.append(RETRY, 0, b"honest", b"k", waiting(record, 0))
    assert not drain.look(record, {0: 0}).stuck


def test_what_a_checkpoint_reports_is_finished_and_it_is_no_message(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    for origin in range(6):
        cluster.append("orders", 0, b"x", b"k")
        cluster.append(RETRY, 0, b"x", b"k", waiting(record, origin))
    with cluster.change():
        cluster.group("billing").store(TopicPartition("orders", 0), Committed(6, ""))
    checkpointed(cluster, RETRY, record.topic_id, (1, 2), (4, 5), fresh=[(2, 3)])
    found = drain.look(record, {0: 6})
    assert (found.total, found.unreadable) == (3, 0)
    checkpointed(cluster, RETRY, record.topic_id, (0, 6))
    assert drain.look(record, {0: 6}).total == 0


def test_a_checkpoint_that_has_been_trimmed_meanwhile_reports_nothing_that_is_still_there(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    cluster.append("orders", 0, b"x", b"k")
    for _ in range(3):
        cluster.append(RETRY, 0, b"x", b"k", waiting(record, 0))
    at = checkpointed(cluster, RETRY, record.topic_id, (1, 2)).offset
    cluster.append(RETRY, 0, b"x", b"k", waiting(record, 0))
    cluster.truncate(RETRY, 0, at + 1)
    with cluster.change():
        cluster.group("billing").store(TopicPartition("orders", 0), Committed(1, ""))
    assert drain.look(record, {0: 1}).total == 1


def test_what_a_checkpoint_reports_of_the_home_topic_is_finished(
    drain: Drain, record: SubscriptionRecord, cluster: MemoryCluster
) -> None:
    for _ in range(4):
        cluster.append("orders", 0, b"x", b"k")
    named = checkpointed(cluster, RETRY, record.topic_id, main=[(2, 4)])
    text = ack_map.encode(AckMap(7, (), checkpoint=named, more=True), 1)
    with cluster.change():
        cluster.group("billing").store(TopicPartition("orders", 0), Committed(1, text))
    assert drain.look(record, {0: 4}).total == 1
