"""Topics: made, adopted, changed, listed, deleted; each refusal names what is in the way and the way out."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from kafka_pubsub import (
    AlreadyExists,
    BrokerUnavailable,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSub,
    TopicOptions,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.partitioner import partition_of
from tests.unit.crashing import FailAt, another


def kafka_topics(backend: MemoryBackend) -> list[str]:
    """Those that somebody may publish to."""
    names = backend.admin.topic_names()
    return [name for name in names if not name.startswith("_") and not name.endswith(".retry")]


# -- making ----------------------------------------------------------------------------------------------------


def test_a_new_topic_has_the_given_settings_and_defaults_for_the_rest(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic(
        "orders", partitions=12, message_ordering=True, retention=timedelta(hours=1), labels={"team": "a"}
    )
    assert topic.name == "orders"
    assert topic.options == TopicOptions(
        partitions=12, replication=1, message_ordering=True, retention=3600, labels={"team": "a"}
    )
    info = backend.admin.topic("orders")
    assert (info.partitions, info.config["retention.ms"]) == (12, "3600000")
    assert ps.create_topic("plain").options == TopicOptions(partitions=8, replication=1)


def test_a_handle_is_made_without_looking(ps: PubSub) -> None:
    topic = ps.topic("nowhere")
    assert topic.name == "nowhere"
    with pytest.raises(NotFound, match=r"topic 'nowhere' not found: create_topic\('nowhere'\)"):
        _ = topic.options


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"partitions": 0}, "partitions"),
        ({"partitions": "many"}, "partitions"),
        ({"replication": 0}, "replication"),
        ({"retention": -1}, "retention"),
        ({"retention": float("nan")}, "retention"),
        ({"message_ordering": "perhaps"}, "message_ordering"),
        ({"labels": {"a": 1}}, "labels"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_made(
    ps: PubSub, backend: MemoryBackend, settings: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument, match=field):
        ps.create_topic("orders", **settings)
    assert kafka_topics(backend) == []


def test_an_existing_topic_is_an_error_unless_that_is_ok(ps: PubSub) -> None:
    ps.create_topic("orders", partitions=3, message_ordering=True)
    with pytest.raises(AlreadyExists, match="topic 'orders' already exists"):
        ps.create_topic("orders", partitions=3)
    assert ps.create_topic("orders", partitions=3, message_ordering=True, exist_ok=True).name == "orders"
    assert ps.create_topic("orders", exist_ok=True).options.partitions == 3


@pytest.mark.parametrize("exist_ok", [True, False])
def test_other_settings_are_named_with_both_values_even_if_existing_is_ok(ps: PubSub, exist_ok: bool) -> None:
    ps.create_topic("orders", partitions=3, message_ordering=True, labels={"a": "1"})
    with pytest.raises(AlreadyExists) as caught:
        ps.create_topic(
            "orders", partitions=4, message_ordering=False, labels={"a": "1"}, retention=60, exist_ok=exist_ok
        )
    message = caught.value.message
    assert "partitions is 3, not 4" in message
    assert "message_ordering is True, not False" in message
    assert "retention is None, not 60.0" in message
    assert "labels" not in message
    assert ps.topic("orders").options.partitions == 3


def test_a_topic_that_kafka_has_already_is_for_adopting(ps: PubSub, backend: MemoryBackend) -> None:
    backend.admin.create_topic("old", 5, 1, {"retention.ms": "1000"})
    for exist_ok in (False, True):
        with pytest.raises(AlreadyExists, match=r"adopt_topic\('old'\)"):
            ps.create_topic("old", exist_ok=exist_ok)
    assert ps.list_topics() == []
    assert ps.adopt_topic("old").options == TopicOptions(partitions=5, replication=1)


def test_a_topic_that_somebody_deleted_from_kafka_is_made_again(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=2)
    sub = ps.create_subscription("billing", "orders")
    backend.admin.delete_topic("orders")
    with pytest.raises(NotFound, match="deleted from Kafka by another client"):
        ps.topic("orders").publish(b"x").result(timeout=10)
    assert ps.create_topic("orders", partitions=4).options.partitions == 4
    with pytest.raises(FailedPrecondition, match="detached"):
        sub.pull(print)


def test_a_topic_that_somebody_made_again_is_not_taken_for_the_old_one(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders", partitions=2)
    backend.admin.delete_topic("orders")
    backend.admin.create_topic("orders", 2, 1, {})
    for call in (
        lambda: ps.create_topic("orders", exist_ok=True),
        lambda: ps.create_subscription("billing", "orders"),
        lambda: ps.topic("orders").publish(b"x").result(timeout=10),
        lambda: ps.update_topic("orders", labels={"a": "b"}),
    ):
        with pytest.raises(FailedPrecondition, match="deleted and made again by another client"):
            call()
    ps.adopt_topic("orders")
    assert ps.topic("orders").publish(b"x").result(timeout=10)


def test_a_refused_creation_leaves_nothing_behind(cluster: MemoryCluster, backend: MemoryBackend) -> None:
    refusal = FailedPrecondition("replication 3 but 1 broker")
    with another(cluster, FailAt("create_topic", refusal)) as ps:
        with pytest.raises(FailedPrecondition, match="1 broker"):
            ps.create_topic("orders")
        assert dict(backend.catalog.topics()) == {}


def test_a_creation_without_an_answer_goes_on_at_the_next_try(
    cluster: MemoryCluster, backend: MemoryBackend, ps: PubSub
) -> None:
    lost = BrokerUnavailable("no answer")
    done = FailAt("create_topic", lost, before=lambda: backend.admin.create_topic("orders", 3, 1, {}))
    with another(cluster, done) as unlucky, pytest.raises(BrokerUnavailable):
        unlucky.create_topic("orders", partitions=3)
    assert ps.list_topics() == []
    with pytest.raises(NotFound):
        ps.create_subscription("billing", "orders")
    with pytest.raises(AlreadyExists, match="partitions is 3, not 4"):
        ps.create_topic("orders", partitions=4)
    assert ps.create_topic("orders", partitions=3).options.partitions == 3
    assert [topic.name for topic in ps.list_topics()] == ["orders"]


@pytest.mark.parametrize("exist_ok", [True, False])
def test_of_two_processes_that_make_the_same_topic_one_wins(
    cluster: MemoryCluster, ps: PubSub, exist_ok: bool
) -> None:
    race = FailAt("put_topic", None, before=lambda: ps.create_topic("orders", partitions=3))
    with another(cluster, race) as slower:
        if exist_ok:
            assert slower.create_topic("orders", partitions=3, exist_ok=True).options.partitions == 3
        else:
            with pytest.raises(AlreadyExists):
                slower.create_topic("orders", partitions=3)
    assert len(ps.list_topics()) == 1


def test_without_the_right_to_create_only_what_exists_is_given_out(
    cluster: MemoryCluster, backend: MemoryBackend, ps: PubSub
) -> None:
    ps.create_topic("orders", partitions=3)
    backend.admin.create_topic("old", 1, 1, {})
    with PubSub.in_memory(MemoryBackend(cluster=cluster), create=False) as modest:
        with pytest.raises(FailedPrecondition, match="create=False"):
            modest.create_topic("new")
        assert modest.create_topic("orders", partitions=3, exist_ok=True).name == "orders"
        assert modest.adopt_topic("old").name == "old"
        assert modest.topic("orders").publish(b"x").result(timeout=10)
    assert kafka_topics(backend) == ["old", "orders"]


# -- adopting --------------------------------------------------------------------------------------------------


def test_an_adopted_topic_keeps_its_messages_and_may_be_published_to(
    ps: PubSub, backend: MemoryBackend
) -> None:
    backend.admin.create_topic("old", 2, 1, {})
    topic = ps.adopt_topic("old", message_ordering=True, labels={"a": "b"})
    assert (topic.options.message_ordering, topic.options.labels) == (True, {"a": "b"})
    topic.publish(b"x", ordering_key="k").result(timeout=10)
    ps.delete_topic("old")
    assert ps.list_topics() == []
    assert sum(backend.admin.last_stable_offsets("old").values()) == 1


def write(backend: MemoryBackend, topic: str, places: Iterable[tuple[bytes | None, int]]) -> None:
    """Records of another program, each put into the partition that it chose."""
    for key, partition in places:
        backend.cluster.append(topic, partition, b"x", key)


KEYS = [b"key-%d" % number for number in range(3000)]


def test_adopting_notices_keys_that_another_rule_has_put_elsewhere(
    ps: PubSub, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.admin.create_topic("old", 2, 1, {})
    write(backend, "old", [(key, zlib.crc32(key) % 2) for key in KEYS] + [(None, 0)])
    topic = ps.adopt_topic("old")
    (said,) = caplog.messages
    assert "sampled keys lie in another partition" in said
    assert "partitioner=murmur2_random" in said
    found = topic.key_places()
    assert found is not None
    # The oldest and the newest 500 of each partition.
    assert 1900 < found.keys <= 2000
    assert found.misplaced > 800
    caplog.clear()
    ps.adopt_topic("old", exist_ok=True)
    ps.delete_topic("old")
    ps.adopt_topic("old", check_keys=False)
    assert not [said for said in caplog.messages if "sampled keys" in said]


def test_adopting_says_nothing_of_keys_that_lie_where_they_belong(
    ps: PubSub, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.admin.create_topic("old", 40, 1, {})
    write(backend, "old", [(key, partition_of(key, 40)) for key in KEYS])
    found = ps.adopt_topic("old").key_places()
    assert found is not None
    assert (found.misplaced, found.advice, found.keys > 1000) == (0, None, True)
    assert caplog.messages == []
    backend.admin.create_topic("empty", 2, 1, {})
    assert ps.adopt_topic("empty").key_places() == (2, 0, 0, (), None)


def test_a_topic_that_may_not_be_read_is_adopted_all_the_same(
    ps: PubSub, backend: MemoryBackend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise PermissionDenied("no right to read")

    backend.admin.create_topic("old", 2, 1, {})
    monkeypatch.setattr(backend.admin, "last_stable_offsets", refuse)
    assert ps.adopt_topic("old").key_places() is None
    assert "couldn't be looked at: no right to read" in caplog.text


def test_adopting_twice_is_an_error_unless_that_is_ok(ps: PubSub, backend: MemoryBackend) -> None:
    backend.admin.create_topic("old", 2, 1, {})
    ps.adopt_topic("old", message_ordering=True)
    with pytest.raises(AlreadyExists):
        ps.adopt_topic("old")
    with pytest.raises(AlreadyExists, match="message_ordering is True, not False"):
        ps.adopt_topic("old", message_ordering=False, exist_ok=True)
    assert ps.adopt_topic("old", message_ordering=True, exist_ok=True).name == "old"


def test_a_topic_that_kafka_does_not_have_cannot_be_adopted(ps: PubSub) -> None:
    with pytest.raises(NotFound, match="old"):
        ps.adopt_topic("old")
    with pytest.raises(InvalidArgument, match="begins with '_'"):
        ps.adopt_topic("_schemas")


# -- changing --------------------------------------------------------------------------------------------------


def test_an_update_changes_the_given_settings_only(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", retention=60, message_ordering=True, labels={"a": "b"})
    ps.update_topic("orders", retention=120)
    assert ps.topic("orders").options.retention == 120
    assert ps.topic("orders").options.message_ordering is True
    assert ps.topic("orders").options.labels == {"a": "b"}
    assert backend.admin.topic("orders").config["retention.ms"] == "120000"
    ps.update_topic("orders", retention=None, message_ordering=None, labels={})
    assert ps.topic("orders").options == TopicOptions(partitions=8, replication=1)
    assert "retention.ms" not in backend.admin.topic("orders").config


def test_an_update_to_something_wrong_changes_nothing(ps: PubSub) -> None:
    ps.create_topic("orders", retention=60)
    with pytest.raises(InvalidArgument, match="retention"):
        ps.update_topic("orders", retention=0)
    assert ps.topic("orders").options.retention == 60
    with pytest.raises(NotFound, match="topic 'nowhere' not found"):
        ps.update_topic("nowhere", retention=60)


def test_two_processes_that_update_different_settings_both_win(cluster: MemoryCluster, ps: PubSub) -> None:
    ps.create_topic("orders")
    race = FailAt("put_topic", None, before=lambda: ps.update_topic("orders", labels={"a": "b"}))
    with another(cluster, race) as other:
        other.update_topic("orders", message_ordering=True)
    assert ps.topic("orders").options == TopicOptions(
        partitions=8, replication=1, message_ordering=True, labels={"a": "b"}
    )


def test_a_change_that_always_loses_gives_up_with_the_catalogs_words(
    cluster: MemoryCluster, ps: PubSub
) -> None:
    ps.create_topic("orders")
    conflict = FailedPrecondition("changed by another client")
    unlucky = FailAt("put_topic", conflict)
    with another(cluster, unlucky) as other, pytest.raises(FailedPrecondition, match="changed by another"):
        other.update_topic("orders", message_ordering=True)


def test_a_change_holds_for_the_next_message(ps: PubSub) -> None:
    topic = ps.topic("orders")
    with pytest.raises(NotFound):
        topic.publish(b"x")
    ps.create_topic("orders")
    assert topic.publish(b"x", ordering_key="k").result(timeout=10)
    ps.update_topic("orders", message_ordering=False)
    with pytest.raises(InvalidArgument, match="Message ordering must be enabled"):
        topic.publish(b"x", ordering_key="k")
    topic.configure(message_ordering=True)
    assert ps.topic("orders").options.message_ordering is True
    assert topic.publish(b"x", ordering_key="k").result(timeout=10)


def test_a_topic_with_more_partitions_than_it_was_made_with_takes_no_keys(
    ps: PubSub, cluster: MemoryCluster
) -> None:
    ps.create_topic("orders", partitions=2)
    sub = ps.create_subscription("billing", "orders")
    cluster.add_partitions("orders", 3)
    topic = ps.topic("orders")
    for call in (
        lambda: topic.publish(b"x", ordering_key="k"),
        lambda: sub.pull(print),
        lambda: ps.create_subscription("shipping", "orders"),
    ):
        with pytest.raises(FailedPrecondition, match="made with 2 partitions and has 3 now") as caught:
            call()
        assert "repartition_topic('orders', partitions=3)" in caught.value.message
    assert topic.publish(b"x").result(timeout=10)
    assert ps.update_topic("orders", labels={"a": "b"}).options.partitions == 2


# -- listing and deleting --------------------------------------------------------------------------------------


def test_topics_are_listed_by_name(ps: PubSub) -> None:
    for name in ("b", "a", "c"):
        ps.create_topic(name)
    assert [topic.name for topic in ps.list_topics()] == ["a", "b", "c"]


def test_a_deleted_topic_is_gone_and_its_subscriptions_are_detached(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("orders")
    topic.publish(b"x").result(timeout=10)
    ps.create_topic("others")
    ps.create_subscription("billing", "orders")
    ps.create_subscription("shipping", "others")
    topic.delete()
    assert kafka_topics(backend) == ["others"]
    records = backend.catalog.subscriptions()
    assert (records["billing"].detached, records["shipping"].detached) == (True, False)
    with pytest.raises(NotFound, match="topic 'orders' not found"):
        topic.publish(b"x").result(timeout=10)
    with pytest.raises(NotFound, match="nothing to delete"):
        ps.delete_topic("orders")


def test_a_topic_made_anew_under_the_same_name_is_published_to_again(ps: PubSub) -> None:
    topic = ps.create_topic("orders", message_ordering=True)
    topic.publish(b"x", ordering_key="k").result(timeout=10)
    ps.delete_topic("orders")
    ps.create_topic("orders", message_ordering=False)
    assert topic.publish(b"x").result(timeout=10)
    with pytest.raises(InvalidArgument, match="Message ordering must be enabled"):
        topic.publish(b"x", ordering_key="k")


def test_a_topic_that_somebody_deleted_from_kafka_can_be_deleted(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders")
    backend.admin.delete_topic("orders")
    ps.delete_topic("orders")
    assert ps.list_topics() == []


def test_a_deletion_without_an_answer_can_be_called_again(cluster: MemoryCluster, ps: PubSub) -> None:
    ps.create_topic("orders")
    lost = FailAt("delete_topic", BrokerUnavailable("gone"))
    with another(cluster, lost) as unlucky, pytest.raises(BrokerUnavailable):
        unlucky.delete_topic("orders")
    with pytest.raises(NotFound, match=r"delete_topic\('orders'\) finishes it"):
        _ = ps.topic("orders").options
    assert ps.list_topics() == []
    ps.delete_topic("orders")
    assert ps.create_topic("orders").options.partitions == 8


def test_a_refused_deletion_changes_nothing(
    cluster: MemoryCluster, ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders", partitions=3)
    ps.create_subscription("billing", "orders")
    refusal = FailAt("delete_topic", FailedPrecondition("topic deletion is disabled"))
    with another(cluster, refusal) as other, pytest.raises(FailedPrecondition, match="disabled"):
        other.delete_topic("orders")
    assert ps.topic("orders").options.partitions == 3
    assert not backend.catalog.subscriptions()["billing"].detached


def test_creating_goes_on_with_a_deletion_that_crashed(cluster: MemoryCluster, ps: PubSub) -> None:
    ps.create_topic("orders", partitions=3)
    lost = FailAt("delete_topic", BrokerUnavailable("gone"))
    with another(cluster, lost) as unlucky, pytest.raises(BrokerUnavailable):
        unlucky.delete_topic("orders")
    assert ps.create_topic("orders", partitions=5).options.partitions == 5
