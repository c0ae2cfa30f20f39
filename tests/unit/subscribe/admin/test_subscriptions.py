"""Subscriptions: made, changed, listed, deleted, and what becomes of them when their topic changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kafka_pubsub import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PubSub,
    RetryPolicy,
    SubscriptionOptions,
)
from kafka_pubsub.administration import manage_subscriptions, manage_topics
from kafka_pubsub.config import Batching
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.admin.subscriptions import LEAVE_TIMEOUT
from tests.unit.crashing import FailAt, another


class Nobody:
    """A listener of a consumer that isn't ours."""

    def assigned(self, partitions: object) -> dict[TopicPartition, int]:
        return {}

    def revoked(self, partitions: object) -> None: ...

    def lost(self, partitions: object) -> None: ...

    def failed(self, partition: object, error: object, fatal: bool) -> None: ...


def store(backend: MemoryBackend, topic: str, count: int) -> None:
    """Puts records into the topic, behind our back."""
    writer = backend.writer(Batching(), 1_000_000)
    for number in range(count):
        writer.append(topic, b"%d" % number, b"%d" % number, None, lambda error, record: None)
    assert writer.flush(10) == 0
    writer.close()


# -- making ----------------------------------------------------------------------------------------------------


def test_a_new_subscription_has_the_given_settings_and_defaults_for_the_rest(ps: PubSub) -> None:
    topic = ps.create_topic("orders")
    sub = ps.create_subscription(
        "billing",
        topic=topic,
        ack_deadline=timedelta(seconds=30),
        message_ordering=True,
        retry=RetryPolicy(min_backoff=1, max_backoff=2),
        labels={"a": "b"},
    )
    assert (sub.name, sub.topic) == ("billing", "orders")
    assert sub.options == SubscriptionOptions(
        ack_deadline=30,
        message_ordering=True,
        retry=RetryPolicy(min_backoff=1, max_backoff=2),
        labels={"a": "b"},
    )
    assert ps.create_subscription("plain", "orders").options == SubscriptionOptions()


def test_its_position_is_the_end_of_the_topic_committed_at_creation(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders", partitions=3)
    store(backend, "orders", 50)
    ends = dict(backend.admin.last_stable_offsets("orders"))
    ps.create_subscription("billing", "orders")
    store(backend, "orders", 50)
    committed = backend.admin.group_offsets("billing", "orders")
    assert {number: each.offset for number, each in committed.items()} == ends
    record = backend.catalog.subscriptions()["billing"]
    assert (dict(record.positions), record.partitions) == (ends, 3)
    assert record.topic_id == backend.admin.topic("orders").topic_id


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"ack_deadline": 0}, "ack_deadline"),
        ({"ack_deadline": -5}, "ack_deadline"),
        ({"ack_deadline": 601}, "ack_deadline"),
        ({"max_extension": -1}, "max_extension"),
        ({"retry": "often"}, "retry"),
        ({"labels": [1]}, "labels"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_made(
    ps: PubSub, backend: MemoryBackend, settings: dict[str, Any], field: str
) -> None:
    ps.create_topic("orders")
    with pytest.raises(InvalidArgument, match=field):
        ps.create_subscription("billing", "orders", **settings)
    assert dict(backend.catalog.subscriptions()) == {}


def test_its_topic_must_exist(ps: PubSub, backend: MemoryBackend) -> None:
    with pytest.raises(NotFound, match=r"topic 'orders' not found: create_topic"):
        ps.create_subscription("billing", "orders")
    backend.admin.create_topic("old", 1, 1, {})
    with pytest.raises(NotFound, match=r"adopt_topic\('old'\)"):
        ps.create_subscription("billing", "old")


def test_an_existing_subscription_is_an_error_unless_that_is_ok(ps: PubSub) -> None:
    ps.create_topic("orders")
    ps.create_subscription("billing", "orders", ack_deadline=30)
    with pytest.raises(AlreadyExists, match="subscription 'billing' already exists"):
        ps.create_subscription("billing", "orders", ack_deadline=30)
    assert ps.create_subscription("billing", "orders", ack_deadline=30, exist_ok=True).name == "billing"
    assert ps.create_subscription("billing", "orders", exist_ok=True).options.ack_deadline == 30


@pytest.mark.parametrize("exist_ok", [True, False])
def test_other_settings_are_named_with_both_values_even_if_existing_is_ok(ps: PubSub, exist_ok: bool) -> None:
    ps.create_topic("orders")
    ps.create_topic("others")
    ps.create_subscription("billing", "orders", ack_deadline=30, message_ordering=True)
    with pytest.raises(AlreadyExists) as caught:
        ps.create_subscription("billing", "others", ack_deadline=20, message_ordering=True, exist_ok=exist_ok)
    assert "topic is 'orders', not 'others'" in caught.value.message
    assert "ack_deadline is 30.0, not 20.0" in caught.value.message
    assert "message_ordering" not in caught.value.message


def test_a_group_with_members_that_are_not_ours_is_left_alone(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders")
    stranger = backend.reader("billing", "stranger")
    stranger.subscribe(["orders"], Nobody())
    stranger.read(1, 0)
    with pytest.raises(FailedPrecondition, match="consumer group of that name has 1 members"):
        ps.create_subscription("billing", "orders")
    stranger.close()
    assert ps.list_subscriptions() == []
    assert ps.create_subscription("billing", "orders").name == "billing"


def test_a_group_with_a_position_that_is_not_ours_is_left_alone(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=2)
    store(backend, "orders", 9)
    backend.admin.set_positions("billing", {TopicPartition("orders", 0): 1})
    with pytest.raises(FailedPrecondition, match="committed offsets in topic 'orders' which aren't ours"):
        ps.create_subscription("billing", "orders")
    assert backend.admin.group_offsets("billing", "orders")[0] == Committed(1, "")
    assert ps.list_subscriptions() == []


@pytest.mark.parametrize("exist_ok", [True, False])
def test_of_two_processes_that_make_the_same_subscription_one_wins(
    cluster: MemoryCluster, ps: PubSub, exist_ok: bool
) -> None:
    ps.create_topic("orders")
    race = FailAt("put_subscription", None, before=lambda: ps.create_subscription("billing", "orders"))
    with another(cluster, race) as slower:
        if exist_ok:
            assert slower.create_subscription("billing", "orders", exist_ok=True).name == "billing"
        else:
            with pytest.raises(AlreadyExists):
                slower.create_subscription("billing", "orders")
    assert len(ps.list_subscriptions()) == 1


def test_without_the_right_to_create_no_group_is_made(
    cluster: MemoryCluster, backend: MemoryBackend, ps: PubSub
) -> None:
    ps.create_topic("orders")
    ps.create_subscription("shipping", "orders")
    with PubSub.in_memory(MemoryBackend(cluster=cluster), create=False) as modest:
        with pytest.raises(FailedPrecondition, match="create=False"):
            modest.create_subscription("billing", "orders")
        assert modest.create_subscription("shipping", "orders", exist_ok=True).name == "shipping"
        assert modest.update_subscription("shipping", ack_deadline=20).options.ack_deadline == 20
    assert not any(each.offset for each in backend.admin.group_offsets("billing", "orders").values())


# -- changing --------------------------------------------------------------------------------------------------


def test_an_update_changes_the_given_settings_only(ps: PubSub) -> None:
    ps.create_topic("orders")
    ps.create_subscription("billing", "orders", ack_deadline=30, retry=RetryPolicy(), message_ordering=True)
    ps.update_subscription("billing", ack_deadline=60)
    assert ps.subscription("billing").options == SubscriptionOptions(
        ack_deadline=60, retry=RetryPolicy(), message_ordering=True
    )
    ps.update_subscription("billing", retry=None)
    assert ps.subscription("billing").options.retry is None
    with pytest.raises(InvalidArgument, match="ack_deadline"):
        ps.update_subscription("billing", ack_deadline=0)
    with pytest.raises(NotFound, match="subscription 'nobody' not found"):
        ps.update_subscription("nobody", ack_deadline=60)


# -- deleting --------------------------------------------------------------------------------------------------


def test_a_deleted_subscription_is_gone_with_its_position(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    sub.delete()
    assert ps.list_subscriptions() == []
    assert not any(each.offset for each in backend.admin.group_offsets("billing", "orders").values())
    with pytest.raises(NotFound, match="subscription 'billing' not found: create_subscription"):
        sub.pull(print)
    with pytest.raises(NotFound, match="nothing to delete"):
        ps.delete_subscription("billing")


def test_made_anew_it_begins_at_the_end_again(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=2)
    ps.create_subscription("billing", "orders")
    ps.delete_subscription("billing")
    store(backend, "orders", 20)
    ps.create_subscription("billing", "orders")
    committed = backend.admin.group_offsets("billing", "orders")
    assert sum(each.offset or 0 for each in committed.values()) == 20


def test_a_deletion_waits_for_members_and_says_when_they_stay(backend: MemoryBackend, ps: PubSub) -> None:
    ps.create_topic("orders")
    ps.create_subscription("billing", "orders")
    member = backend.reader("billing", "elsewhere")
    member.subscribe(["orders"], Nobody())
    member.read(1, 0)
    slept: list[float] = []
    topics = manage_topics(backend, may_create=True)
    admin = manage_subscriptions(backend, topics, may_create=True, sleep=slept.append)
    with pytest.raises(FailedPrecondition, match="1 members are still connected"):
        admin.delete("billing")
    assert sum(slept) >= LEAVE_TIMEOUT
    with pytest.raises(NotFound, match=r"delete_subscription\('billing'\) finishes it"):
        admin.record("billing")
    assert ps.list_subscriptions() == []
    leaving = manage_subscriptions(backend, topics, may_create=True, sleep=lambda seconds: member.close())
    leaving.delete("billing")
    assert dict(backend.catalog.subscriptions()) == {}


# -- when the topic changes ------------------------------------------------------------------------------------


def test_a_detached_subscription_says_so_and_can_be_replaced(ps: PubSub) -> None:
    ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    ps.delete_topic("orders")
    assert [each.name for each in ps.list_subscriptions()] == ["billing"]
    for call in (
        lambda: sub.pull(print),
        lambda: sub.receive(1, 0),
        lambda: ps.create_subscription("billing", "orders", exist_ok=True),
    ):
        with pytest.raises(FailedPrecondition, match="detached: its topic 'orders' was deleted"):
            call()
    ps.create_topic("orders")
    with pytest.raises(FailedPrecondition, match="detached"):
        sub.pull(print)
    ps.delete_subscription("billing")
    assert ps.create_subscription("billing", "orders").name == "billing"


def test_a_topic_that_was_deleted_and_made_again_behind_our_back_is_not_pulled_from(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders", partitions=2)
    sub = ps.create_subscription("billing", "orders")
    backend.admin.delete_topic("orders")
    with pytest.raises(NotFound, match="deleted from Kafka by another client"):
        sub.pull(print)
    backend.admin.create_topic("orders", 2, 1, {})
    with pytest.raises(FailedPrecondition, match="deleted and made again by another client"):
        sub.pull(print)
    ps.adopt_topic("orders")
    with pytest.raises(FailedPrecondition, match="detached"):
        sub.pull(print)
