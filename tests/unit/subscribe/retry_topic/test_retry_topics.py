"""Retry topics: made with their subscription, adopted where they may not be made, and never replaced in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, NotFound, PubSub
from kafka_pubsub.config import RetryTopic, SubscriptionRecord
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import Committed, TopicInfo, TopicPartition
from kafka_pubsub.subscribe.retry_topic.retry_topics import check_retry_layout, retry_beginning
from kafka_pubsub.topics.companion_topics import companion_settings
from tests.unit.crashing import FailAt, another

RETRY = "orders.sub.billing.retry"


def record_of(backend: MemoryBackend) -> SubscriptionRecord:
    return backend.catalog.subscriptions()["billing"]


def operators(backend: MemoryBackend, partitions: int = 3, **changes: str) -> TopicInfo:
    """A retry topic that an operator made."""
    settings = {**companion_settings(backend.admin.topic("orders"))}
    settings |= {name.replace("_", "."): value for name, value in changes.items()}
    return backend.admin.create_topic(RETRY, partitions, 1, settings)


def without_retry_topic(backend: MemoryBackend) -> None:
    """As an older version has left the catalog."""
    record = record_of(backend)
    backend.admin.delete_topic(RETRY)
    backend.catalog.put_subscription(record.model_copy(update={"retry_topic": None}), record)


@pytest.fixture
def modest(cluster: MemoryCluster) -> PubSub:
    return PubSub.in_memory(MemoryBackend(cluster=cluster), create=False)


def test_it_is_made_with_the_subscription_and_keeps_everything(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=3, replication=2)
    ps.create_subscription("billing", "orders")
    home, info = backend.admin.topic("orders"), backend.admin.topic(RETRY)
    assert (info.partitions, info.replication) == (3, 2)
    assert info.max_message_bytes > home.max_message_bytes
    assert info.config["cleanup.policy"] == "delete"
    assert (info.config["retention.ms"], info.config["retention.bytes"]) == ("-1", "-1")
    assert record_of(backend).retry_topic == RetryTopic(
        name=RETRY, topic_id=info.topic_id, positions={0: 0, 1: 0, 2: 0}
    )
    committed = backend.admin.group_offsets("billing", RETRY)
    assert committed == {number: Committed(0, "") for number in range(3)}


def test_a_record_of_an_older_version_loads_and_needs_one(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    without_retry_topic(backend)
    text = record_of(backend).model_dump_json(exclude={"retry_topic"})
    assert SubscriptionRecord.model_validate_json(text).retry_topic is None
    with pytest.raises(FailedPrecondition, match="has no retry topic") as caught:
        sub.pull(print)
    assert "update_subscription('billing', remake_retry_topic=True)" in caught.value.message
    ps.update_subscription("billing", remake_retry_topic=True)
    sub.pull(lambda message: message.ack()).close()


def test_without_the_right_to_make_one_it_is_said_how_to(
    ps: PubSub, modest: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders", partitions=3)
    ps.create_subscription("billing", "orders")
    without_retry_topic(backend)
    calls: list[Callable[[], object]] = [
        lambda: modest.update_subscription("billing", remake_retry_topic=True),
        lambda: modest.create_subscription("billing", "orders", exist_ok=True),
    ]
    for call in calls:
        with pytest.raises(FailedPrecondition, match="no topics are made") as caught:
            call()
        assert f"{RETRY!r}" in caught.value.message
        assert "with 3 partitions and cleanup.policy=delete, " in caught.value.message
        assert "retention.ms=-1, unclean.leader.election.enable=false" in caught.value.message
        assert "update_subscription('billing', remake_retry_topic=True)" in caught.value.message
    operators(backend)
    modest.update_subscription("billing", remake_retry_topic=True)
    modest.subscription("billing").pull(lambda message: message.ack()).close()


def test_an_older_subscription_gets_one_when_it_is_created_again(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=3)
    ps.create_subscription("billing", "orders")
    without_retry_topic(backend)
    ps.create_subscription("billing", "orders", exist_ok=True)
    made = record_of(backend).retry_topic
    assert made is not None
    assert (made.topic_id, made.positions) == (backend.admin.topic(RETRY).topic_id, {0: 0, 1: 0, 2: 0})


def test_without_the_right_to_make_one_an_operators_is_adopted(
    ps: PubSub, modest: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders", partitions=3)
    ps.create_subscription("billing", "orders")
    without_retry_topic(backend)
    info = operators(backend)
    backend.cluster.append(RETRY, 1, b"a stranger's", b"k")
    modest.create_subscription("billing", "orders", exist_ok=True)
    assert record_of(backend).retry_topic == RetryTopic(
        name=RETRY, topic_id=info.topic_id, adopted=True, positions={0: 0, 1: 1, 2: 0}
    )
    modest.delete_subscription("billing")
    assert backend.admin.topic(RETRY).topic_id == info.topic_id


@pytest.mark.parametrize(
    ("partitions", "changes", "reason"),
    [
        (4, {}, "it has 4 partitions, not 3"),
        (3, {"retention_ms": "1000"}, "retention.ms is 1000, not -1"),
        (3, {"cleanup_policy": "compact"}, "cleanup.policy is compact, not delete"),
        (3, {"max_message_bytes": "1048588"}, "max.message.bytes is 1048588, not at least"),
        (3, {"unclean_leader_election_enable": "true"}, "unclean.leader.election.enable is true, not false"),
    ],
)
def test_one_that_does_not_fit_is_refused_and_left_alone(
    ps: PubSub,
    modest: PubSub,
    backend: MemoryBackend,
    partitions: int,
    changes: dict[str, str],
    reason: str,
) -> None:
    ps.create_topic("orders", partitions=3)
    info = operators(backend, partitions, **changes)
    with pytest.raises(FailedPrecondition, match=reason):
        ps.create_subscription("billing", "orders")
    assert dict(backend.catalog.subscriptions()) == {}
    backend.admin.delete_topic(RETRY)
    ps.create_subscription("billing", "orders")
    without_retry_topic(backend)
    info = operators(backend, partitions, **changes)
    with pytest.raises(FailedPrecondition, match=reason):
        modest.create_subscription("billing", "orders", exist_ok=True)
    assert record_of(backend).retry_topic is None
    assert backend.admin.topic(RETRY) == info


def test_a_refusal_to_make_it_leaves_nothing(
    cluster: MemoryCluster, ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders")
    refusal = FailAt("create_topic", FailedPrecondition("too many partitions"))
    with another(cluster, refusal) as other, pytest.raises(FailedPrecondition, match="too many"):
        other.create_subscription("billing", "orders")
    assert dict(backend.catalog.subscriptions()) == {}
    assert not backend.admin.group_offsets("billing", "orders")


def test_names_that_do_not_fit_or_collide_are_refused_before_anything_is_made(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("t" * 200)
    ps.create_topic("orders")
    backend.admin.create_topic("orders_sub_billing_retry", 1, 1, {})
    before = backend.admin.topic_names()
    with pytest.raises(InvalidArgument, match=r"retry topic .* must fit Kafka's 249"):
        ps.create_subscription("s" * 60, "t" * 200)
    with pytest.raises(InvalidArgument, match="can't be told from 'orders_sub_billing_retry'"):
        ps.create_subscription("billing", "orders")
    assert backend.admin.topic_names() == before
    assert dict(backend.catalog.subscriptions()) == {}


# -- its end -----------------------------------------------------------------------------------------------------


def test_it_goes_with_its_subscription(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders")
    ps.create_subscription("billing", "orders")
    ps.delete_subscription("billing")
    assert RETRY not in backend.admin.topic_names()
    assert not backend.admin.group_offsets("billing", RETRY)


def test_it_outlives_its_home_topic_until_the_subscription_goes(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=1)
    ps.create_subscription("billing", "orders")
    backend.cluster.append(RETRY, 0, b"waits", b"k")
    ps.delete_topic("orders")
    assert dict(backend.admin.last_stable_offsets(RETRY)) == {0: 1}
    ps.delete_subscription("billing")
    assert RETRY not in backend.admin.topic_names()


def test_a_cluster_that_keeps_it_keeps_the_subscription(
    cluster: MemoryCluster, ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders")
    ps.create_subscription("billing", "orders")
    before = record_of(backend)
    refusal = FailAt("delete_topic", FailedPrecondition("topic deletion is disabled"))
    with another(cluster, refusal) as other, pytest.raises(FailedPrecondition, match="disabled"):
        other.delete_subscription("billing")
    assert record_of(backend) == before
    assert backend.admin.group_offsets("billing", "orders")


# -- whole or nothing --------------------------------------------------------------------------------------------


def test_a_deleted_one_is_refused_and_remade_only_when_somebody_says_so(
    ps: PubSub, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    ps.create_topic("orders", partitions=3)
    sub = ps.create_subscription("billing", "orders")
    backend.admin.delete_topic(RETRY)
    for call in (lambda: sub.pull(print), lambda: ps.create_subscription("billing", "orders", exist_ok=True)):
        with pytest.raises(FailedPrecondition, match="was deleted by another client") as caught:
            call()
        assert "update_subscription('billing', remake_retry_topic=True)" in caught.value.message
    ps.update_subscription("billing", remake_retry_topic=True)
    assert "is lost" in caplog.text
    sub.pull(lambda message: message.ack()).close()
    made = record_of(backend).retry_topic
    assert made is not None
    assert made.topic_id == backend.admin.topic(RETRY).topic_id


def test_one_made_again_by_somebody_else_is_not_taken_for_ours(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=3)
    sub = ps.create_subscription("billing", "orders")
    backend.admin.delete_topic(RETRY)
    info = operators(backend)
    with pytest.raises(FailedPrecondition, match="deleted and made again by another client"):
        sub.pull(print)
    ps.update_subscription("billing", remake_retry_topic=True)
    sub.pull(lambda message: message.ack()).close()
    made = record_of(backend).retry_topic
    assert made is not None
    assert (made.topic_id, made.adopted) == (info.topic_id, True)


def test_one_with_more_partitions_is_remade_when_nothing_waits_in_it(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    ps.create_topic("orders", partitions=3)
    sub = ps.create_subscription("billing", "orders")
    cluster.add_partitions(RETRY, 5)
    with pytest.raises(FailedPrecondition, match="has 5 partitions and must have 3"):
        sub.pull(print)
    cluster.append(RETRY, 1, b"waits", b"k")
    with pytest.raises(FailedPrecondition, match="up to 1 messages wait"):
        ps.update_subscription("billing", remake_retry_topic=True)
    backend.admin.set_positions("billing", {cluster_place(1): 1})
    ps.update_subscription("billing", remake_retry_topic=True)
    assert backend.admin.topic(RETRY).partitions == 3
    sub.pull(lambda message: message.ack()).close()


def cluster_place(number: int) -> TopicPartition:
    return TopicPartition(RETRY, number)


def test_remaking_one_that_is_as_it_must_be_changes_nothing(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders")
    ps.create_subscription("billing", "orders")
    before = record_of(backend)
    ps.update_subscription("billing", remake_retry_topic=True)
    assert record_of(backend) == before
    with pytest.raises(NotFound):
        ps.update_subscription("nobody", remake_retry_topic=True)


def test_without_the_right_to_make_one_a_lost_one_is_not_forgotten(
    ps: PubSub, modest: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders")
    ps.create_subscription("billing", "orders")
    backend.admin.delete_topic(RETRY)
    with pytest.raises(FailedPrecondition, match="create=False"):
        modest.update_subscription("billing", remake_retry_topic=True)
    assert record_of(backend).retry_topic is not None


def test_its_limit_follows_the_home_topics(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    backend.admin.update_topic("orders", {"max.message.bytes": "20000000"})
    forbidden = FailAt("update_topic", FailedPrecondition("not allowed"))
    with (
        another(cluster, forbidden) as other,
        pytest.raises(FailedPrecondition, match=r"max\.message\.bytes"),
    ):
        other.subscription("billing").pull(print)
    sub.pull(lambda message: message.ack()).close()
    assert backend.admin.topic(RETRY).max_message_bytes > 20_000_000


def test_it_keeps_what_was_acknowledged_as_the_home_topic_does(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    replicas, unclean = "min.insync.replicas", "unclean.leader.election.enable"
    ps.create_topic("orders", replication=3)
    backend.admin.update_topic("orders", {replicas: "2"})
    sub = ps.create_subscription("billing", "orders")
    assert backend.admin.topic(RETRY).config[replicas] == "2"
    assert backend.admin.topic(RETRY).config[unclean] == "false"
    # A topic from an earlier version, of a home topic that has got more replicas since.
    backend.admin.update_topic("orders", {replicas: "3"})
    backend.admin.update_topic(RETRY, {unclean: "true"})
    sub.pull(lambda message: message.ack()).close()
    assert backend.admin.topic(RETRY).config[replicas] == "3"
    assert backend.admin.topic(RETRY).config[unclean] == "false"


def test_it_wants_no_more_replicas_in_sync_than_it_has(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", replication=2)
    backend.admin.update_topic("orders", {"min.insync.replicas": "1"})
    sub = ps.create_subscription("billing", "orders")
    # The home topic has got a third replica since, the retry topic hasn't.
    backend.admin.update_topic("orders", {"min.insync.replicas": "3"})
    sub.pull(lambda message: message.ack()).close()
    assert backend.admin.topic(RETRY).config["min.insync.replicas"] == "2"


@pytest.fixture
def record(ps: PubSub, backend: MemoryBackend) -> SubscriptionRecord:
    ps.create_topic("orders", partitions=3)
    ps.create_subscription("billing", "orders")
    return record_of(backend)


def test_the_layout_check_takes_what_is_right_only(
    record: SubscriptionRecord, backend: MemoryBackend
) -> None:
    info = backend.admin.topic(RETRY)
    check_retry_layout(record, info)
    check_retry_layout(record.model_copy(update={"retry_topic": None}), None)
    check_retry_layout(record, info._replace(partitions=8), partitions=8)
    for wrong in (None, info._replace(topic_id="other"), info._replace(partitions=2)):
        with pytest.raises(FailedPrecondition, match="remake_retry_topic=True") as caught:
            check_retry_layout(record, wrong)
        assert caught.value.calls


def test_a_retry_log_cut_above_the_commit_is_gone_on_with_and_counted(
    record: SubscriptionRecord, caplog: pytest.LogCaptureFixture
) -> None:
    assert retry_beginning(record, 1, Committed(3, ""), (8, 20)).position == 8
    assert [each.levelno for each in caplog.records] == [logging.ERROR] * 2
    assert "up to 5 messages that waited" in caplog.text
    assert "retention.ms" in caplog.text


def test_a_retry_log_trimmed_to_the_commit_is_nothing_to_speak_of(
    record: SubscriptionRecord, caplog: pytest.LogCaptureFixture
) -> None:
    assert retry_beginning(record, 1, Committed(8, ""), (8, 20)).position == 8
    assert not caplog.records


def test_a_young_retry_partition_begins_at_its_copy(record: SubscriptionRecord) -> None:
    assert retry_beginning(record, 1, Committed(None, ""), (0, 20)).position == 0
    with pytest.raises(FailedPrecondition, match="no position"):
        retry_beginning(record, 7, Committed(None, ""), (0, 20))


@pytest.mark.parametrize("lane", [True, False])
def test_the_retry_partition_of_a_new_lane_begins_without_a_warning(
    record: SubscriptionRecord, caplog: pytest.LogCaptureFixture, lane: bool
) -> None:
    retry_beginning(record, 1, Committed(None, ""), (0, 20), lane=lane)
    assert any(each.levelno >= logging.WARNING for each in caplog.records) is not lane
