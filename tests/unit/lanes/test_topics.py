"""Lanes of a topic: allowed, made at their first use, seen by every subscription, kept and deleted."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from kafka_pubsub import (
    BrokerUnavailable,
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    PubSub,
    TopicOptions,
)
from kafka_pubsub.config import LaneTopic, TopicRecord
from kafka_pubsub.errors import NotFound, PublishError, PubSubError, TooFewBrokers
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.topics import catalog_changes
from tests.support import until
from tests.unit.crashing import Crash, CrashAt, FailAt, another, requests_of

PATIENCE = 30.0
RETRY = "jobs.lane.p7.sub.billing.retry"


def record_of(backend: MemoryBackend, topic: str = "jobs") -> TopicRecord:
    return backend.catalog.topics()[topic]


def publish(ps: PubSub, data: bytes = b"x", **lane: Any) -> str:
    return ps.topic("jobs").publish(data, **lane).result(PATIENCE)


# -- topics that may have lanes --------------------------------------------------------------------------------


def test_a_topic_without_lanes_is_one_kafka_topic_whose_record_older_versions_read(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    jobs = ps.create_topic("jobs")
    assert publish(ps, priority=0, durable=True).startswith("jobs:")
    assert jobs.lanes == ["jobs"]
    assert backend.admin.topic_names() == ["jobs"]
    assert "message.timestamp.type" not in backend.admin.topic("jobs").config
    assert cluster.log(TopicPartition("jobs", 0)).read(0, 10)[0].headers() is None
    ps.create_subscription("billing", "jobs")
    texts = "".join(cluster.catalog.values())
    assert all(field not in texts for field in ("priorities", "transient", "default_priority", "lanes"))


def test_a_topic_with_lanes_keeps_its_middle_priority_for_itself(ps: PubSub, backend: MemoryBackend) -> None:
    jobs = ps.create_topic("jobs", priorities=10, transient=True)
    assert jobs.options == TopicOptions(
        partitions=8, replication=1, priorities=10, transient=True, default_priority=4
    )
    assert backend.admin.topic_names() == ["jobs"]
    assert backend.admin.topic("jobs").config["message.timestamp.type"] == "LogAppendTime"
    for lane in ({}, {"priority": 4}, {"durable": True}):
        assert publish(ps, **lane).startswith("jobs:")
    assert jobs.lanes == ["jobs"]
    ps.create_topic("jobs", priorities=10, exist_ok=True)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"priorities": 0}, "priorities must be at least 1"),
        ({"priorities": 11}, "priorities must be at most 10"),
        ({"priorities": 2.5}, "priorities must be a whole number"),
        ({"transient": "perhaps"}, "transient must be true or false"),
    ],
)
def test_a_wrong_setting_is_named(ps: PubSub, settings: Mapping[str, Any], error: str) -> None:
    with pytest.raises(InvalidArgument, match=error):
        ps.create_topic("jobs", **settings)


@pytest.mark.parametrize(
    ("lane", "error"),
    [
        ({"priority": 3}, r"^priority 3: topic 'jobs' has the priorities 0 to 2"),
        ({"priority": -1}, r"^priority -1: topic 'jobs' has the priorities 0 to 2"),
        ({"priority": 1.0}, r"^priority must be a whole number, not 1\.0$"),
        ({"priority": True}, r"^priority must be a whole number, not True$"),
        ({"priority": "1"}, r"^priority must be a whole number, not '1'$"),
        ({"durable": 0}, r"^durable must be True or False, not 0$"),
        ({"durable": False}, r"^durable=False: topic 'jobs' has no transient class.*update_topic"),
    ],
)
def test_a_wrong_lane_is_refused_by_the_call(
    ps: PubSub, backend: MemoryBackend, lane: Mapping[str, Any], error: str
) -> None:
    jobs = ps.create_topic("jobs", priorities=3)
    for _ in range(2):
        with pytest.raises(InvalidArgument, match=error):
            jobs.publish(b"x", **lane)
    with pytest.raises(InvalidArgument, match=error.replace("^", r"^items\[1\]: ")):
        jobs.publish_many([b"x", {"data": b"y", **lane}])  # type: ignore[list-item]
    assert backend.admin.topic_names() == ["jobs"]
    assert record_of(backend).lanes == ()
    assert jobs.publish(b"x").result(PATIENCE).endswith(":0")


def test_a_topic_without_lanes_has_one_priority_and_one_class(ps: PubSub) -> None:
    jobs = ps.create_topic("jobs")
    with pytest.raises(
        InvalidArgument, match=r"priority 7: topic 'jobs' has one priority, 0.*priorities=8\)"
    ):
        jobs.publish(b"x", priority=7)
    with pytest.raises(InvalidArgument, match="durable=False: topic 'jobs' has no transient class"):
        jobs.publish(b"x", durable=False)


# -- lanes that are added to a topic ---------------------------------------------------------------------------


# -- making a lane -----------------------------------------------------------------------------------------------


def test_a_lane_is_made_like_its_topic_at_its_first_message(ps: PubSub, backend: MemoryBackend) -> None:
    jobs = ps.create_topic("jobs", partitions=3, priorities=10, transient=True, retention=7200)
    backend.admin.update_topic("jobs", {"max.message.bytes": "2000000", "min.insync.replicas": "1"})
    publish(ps, priority=7)
    publish(ps, durable=False)
    durable, transient = (backend.admin.topic(name) for name in ("jobs.lane.p7", "jobs.lane.t4"))
    for info in (durable, transient):
        assert (info.partitions, info.replication, info.max_message_bytes) == (3, 1, 2_000_000)
        assert info.config["message.timestamp.type"] == "LogAppendTime"
    assert (durable.config["retention.ms"], durable.config["min.insync.replicas"]) == ("7200000", "1")
    assert (transient.config["retention.ms"], transient.config["segment.ms"]) == ("3600000", "600000")
    assert "min.insync.replicas" not in transient.config
    assert record_of(backend).lanes == (
        LaneTopic(name="jobs.lane.p7", priority=7, durable=True, topic_id=durable.topic_id),
        LaneTopic(name="jobs.lane.t4", priority=4, durable=False, topic_id=transient.topic_id),
    )
    assert jobs.lanes == ["jobs", "jobs.lane.p7", "jobs.lane.t4"]


def test_subscriptions_get_a_retry_topic_for_each_lane_whichever_comes_first(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("jobs", partitions=2, priorities=10)
    ps.create_subscription("billing", "jobs")
    publish(ps, priority=7, ordering_key="k")
    publish(ps, priority=7, ordering_key="k")
    ps.create_subscription("audit", "jobs")
    older, younger = (backend.catalog.subscriptions()[name].lanes for name in ("billing", "audit"))
    assert list(older) == list(younger) == ["jobs.lane.p7"]
    assert older["jobs.lane.p7"].retry_topic.name == RETRY
    assert backend.admin.topic(RETRY).partitions == 2
    assert older["jobs.lane.p7"].retry_topic.topic_id == backend.admin.topic(RETRY).topic_id
    # The older subscription begins at the lane's beginning, the younger at its end.
    assert older["jobs.lane.p7"].positions == {}
    assert sorted(younger["jobs.lane.p7"].positions.values()) == [0, 2]
    committed = backend.admin.group_offsets("audit", "jobs.lane.p7")
    assert sorted(each.offset or 0 for each in committed.values()) == [0, 2]
    assert all(
        each.offset is None for each in backend.admin.group_offsets("billing", "jobs.lane.p7").values()
    )
    ps.delete_subscription("billing")
    assert RETRY not in backend.admin.topic_names()
    assert "jobs.lane.p7.sub.audit.retry" in backend.admin.topic_names()


def test_a_lane_that_a_subscription_would_have_no_retry_topic_for_is_refused(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("jobs", priorities=10)
    name = "s" * (249 - len("jobs.sub..retry"))
    ps.create_subscription(name, "jobs")
    with pytest.raises(InvalidArgument, match="must fit Kafka's 249"):
        publish(ps, priority=7)
    assert record_of(backend).lanes == ()
    ps.delete_subscription(name)
    assert publish(ps, priority=7).startswith("jobs.lane.p7:")
    with pytest.raises(InvalidArgument, match="must fit Kafka's 249"):
        ps.create_subscription(name, "jobs")
    assert name not in backend.catalog.subscriptions()


def test_a_process_that_dies_while_it_makes_a_lane_leaves_nothing_that_another_cannot_finish() -> None:
    def world() -> MemoryCluster:
        cluster = MemoryCluster()
        with another(cluster) as ps:
            ps.create_topic("jobs", partitions=1, priorities=10)
            ps.create_subscription("billing", "jobs")
            ps.create_subscription("audit", "jobs")
        return cluster

    count = requests_of(world(), lambda ps: publish(ps, priority=7))
    assert count > 15
    for at in range(count):
        cluster = world()
        dying = PubSub.in_memory(MemoryBackend(cluster=cluster, faults=CrashAt(at)))
        with contextlib.suppress(Crash):
            dying.topic("jobs").publish(b"x", priority=7)
        with another(cluster) as ps:
            # No message is in a lane that isn't in the record.
            backend = MemoryBackend(cluster=cluster)
            before = record_of(backend).lane("jobs.lane.p7")
            if before is None or not before.topic_id:
                names = backend.admin.topic_names()
                stored = cluster.log(TopicPartition("jobs.lane.p7", 0)).end if "jobs.lane.p7" in names else 0
                assert stored == 0, at
            publish(ps, b"next", priority=7)
            made = record_of(backend).lane("jobs.lane.p7")
            assert made is not None
            assert made.topic_id == backend.admin.topic("jobs.lane.p7").topic_id
            for each in backend.catalog.subscriptions().values():
                retry = each.lanes["jobs.lane.p7"].retry_topic
                assert retry.topic_id == backend.admin.topic(retry.name).topic_id, at
                assert not retry.adopted, at
                assert each.lanes["jobs.lane.p7"].positions == {}, at


def test_publishers_that_begin_with_many_lanes_at_once_make_each_of_them_once(
    cluster: MemoryCluster, ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("jobs", partitions=1, priorities=10, transient=True)
    ps.create_subscription("billing", "jobs")
    failures: list[BaseException] = []

    def begin() -> None:
        try:
            with another(cluster) as other:
                for number in range(10):
                    publish(other, priority=number, durable=number % 2 == 0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert failures == []
    lanes = record_of(backend).lanes
    assert len(lanes) == 9
    assert all(each.topic_id == backend.admin.topic(each.name).topic_id for each in lanes)
    assert sorted(backend.catalog.subscriptions()["billing"].lanes) == sorted(each.name for each in lanes)
    ends = [cluster.log(TopicPartition(each.name, 0)).end for each in lanes]
    assert ends == [6] * 9


class Between(FaultPlan):
    """Does something once, before the n-th request."""

    def __init__(self, at: int, act: Any) -> None:
        self._left, self._act = at, act

    def request(self, operation: str, name: str) -> None:
        self._left -= 1
        if self._left == -1:
            self._act()


@pytest.mark.parametrize("inner", ["lane", "subscription"])
def test_a_lane_and_a_subscription_that_are_made_at_the_same_time_know_each_other(
    inner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_changes, "STANDS", 0.0)

    def world() -> MemoryCluster:
        cluster = MemoryCluster()
        with another(cluster) as ps:
            ps.create_topic("jobs", partitions=1, priorities=10)
        return cluster

    def make(what: str, ps: PubSub) -> None:
        if what == "lane":
            publish(ps, priority=7)
        else:
            ps.create_subscription("billing", "jobs")

    outer = "subscription" if inner == "lane" else "lane"
    count = requests_of(world(), lambda ps: make(outer, ps))
    for at in range(count):
        cluster = world()

        def meanwhile(cluster: MemoryCluster = cluster) -> None:
            with another(cluster) as other:
                make(inner, other)

        with PubSub.in_memory(MemoryBackend(cluster=cluster, faults=Between(at, meanwhile))) as ps:
            make(outer, ps)
            backend = MemoryBackend(cluster=cluster)
            retry = backend.catalog.subscriptions()["billing"].lanes["jobs.lane.p7"].retry_topic
            assert retry.topic_id == backend.admin.topic(RETRY).topic_id, at


def test_a_lane_that_the_cluster_refuses_leaves_nothing_behind(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    ps.create_topic("jobs", priorities=10)
    with another(cluster, FailAt("create_topic", PermissionDenied("you may not"))) as other:
        with pytest.raises(PermissionDenied, match="you may not"):
            publish(other, priority=7)
        assert record_of(backend).lanes == ()
        assert publish(other).startswith("jobs:")
    assert publish(ps, priority=7).startswith("jobs.lane.p7:")


def test_a_lane_that_needs_brokers_that_are_away_is_an_outage_and_no_refusal(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ps.create_topic("jobs", priorities=10)
    with another(cluster, FailAt("create_topic", TooFewBrokers("two of three"))) as other:
        waiting = other.topic("jobs").publish(b"x", priority=7)
        assert "(two of three); messages wait for the broker" in caplog.text
        assert [each.name for each in record_of(backend).lanes] == ["jobs.lane.p7"], "the next look makes it"
        # In memory there is no wait for a topic that doesn't exist.
        assert isinstance(waiting.exception(PATIENCE), PublishError)
    assert publish(ps, priority=7).startswith("jobs.lane.p7:")


def test_publishing_goes_on_when_a_lane_is_made_in_the_background_after_an_outage(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    """Making a lane changes the topic, so each publisher of the topic looks again, also the one that made the lane."""

    class Away(FaultPlan):
        outage = True

        def request(self, operation: str, name: str) -> PubSubError | None:
            return TooFewBrokers("two of three") if self.outage and operation == "create_topic" else None

    ps.create_topic("jobs", priorities=10)
    plan, stored = Away(), list[str]()
    with another(cluster, plan) as other:
        for priority in (0, 7):
            other.topic("jobs").publish(b"early", priority=priority).exception(PATIENCE)
        plan.outage = False
        until(lambda: all(lane.topic_id for lane in record_of(backend).lanes))

        def publish_on() -> None:
            stored.extend(publish(other, priority=priority) for priority in (0, 7))

        publishing = threading.Thread(target=publish_on, daemon=True)
        publishing.start()
        publishing.join(PATIENCE)
        assert [each.split(":")[0] for each in stored] == ["jobs.lane.p0", "jobs.lane.p7"]


def test_a_lane_that_a_broker_does_not_know_yet_is_an_outage_and_no_refusal(
    ps: PubSub, cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ps.create_topic("jobs", partitions=1, priorities=10)
    ps.create_subscription("billing", "jobs")

    class Behind(FaultPlan):
        def request(self, operation: str, name: str) -> PubSubError | None:
            is_behind = operation == "last_stable_offsets" and name.endswith(".retry")
            return NotFound(f"topic {name!r}: there is no such topic") if is_behind else None

    with another(cluster, Behind()) as other:
        other.topic("jobs").publish(b"early", priority=7).exception(PATIENCE)
        assert "it was just made); messages wait for the broker" in caplog.text
    assert publish(ps, priority=7) == "jobs.lane.p7:0:1"


def test_what_is_stored_before_each_subscription_has_its_part_is_read_by_all(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    class NoRetryTopics(FaultPlan):
        def request(self, operation: str, name: str) -> PubSubError | None:
            away = operation == "create_topic" and name.endswith(".retry")
            return TooFewBrokers("two of three") if away else None

    ps.create_topic("jobs", partitions=1, priorities=10)
    for name in ("billing", "audit"):
        ps.create_subscription(name, "jobs")
    with another(cluster, NoRetryTopics()) as other:
        other.topic("jobs").publish(b"early", priority=7).exception(PATIENCE)
    assert [each.value() for each in cluster.log(TopicPartition("jobs.lane.p7", 0)).read(0, 10)] == [b"early"]
    assert publish(ps, priority=7) == "jobs.lane.p7:0:1"
    for name in ("billing", "audit"):
        assert backend.catalog.subscriptions()[name].lanes["jobs.lane.p7"].positions == {}


def test_without_a_broker_it_is_not_known_which_priorities_there_are(
    ps: PubSub, cluster: MemoryCluster
) -> None:
    ps.create_topic("jobs", priorities=10)
    with another(cluster, FailAt("topic", BrokerUnavailable("away"))) as other:
        with pytest.raises(BrokerUnavailable, match=r"isn't known yet which priorities it has \(away\)"):
            other.topic("jobs").publish(b"x", priority=7)
        assert other.topic("jobs").publish(b"x").result(PATIENCE).startswith("jobs:")


def test_a_client_that_may_not_create_uses_lanes_that_were_made(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    ps.create_topic("jobs", partitions=3, priorities=10)
    with PubSub.in_memory(MemoryBackend(cluster=cluster), create=False) as other:
        with pytest.raises(
            FailedPrecondition,
            match=r"lane 'jobs\.lane\.p7'.*3 partitions.*message\.timestamp\.type=LogAppend",
        ):
            publish(other, priority=7)
        assert record_of(backend).lanes == ()
        backend.admin.create_topic("jobs.lane.p7", 3, None, {"message.timestamp.type": "LogAppendTime"})
        assert publish(other, priority=7).startswith("jobs.lane.p7:")


# -- lanes that aren't as they must be ---------------------------------------------------------------------------


def test_a_kafka_topic_of_a_lanes_name_is_taken_from_its_end_on(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    ps.create_topic("jobs", partitions=1, priorities=10)
    ps.create_subscription("billing", "jobs")
    backend.admin.create_topic("jobs.lane.p7", 1, None, {})
    cluster.append("jobs.lane.p7", 0, b"somebody's")
    assert publish(ps, priority=7) == "jobs.lane.p7:0:1"
    assert backend.catalog.subscriptions()["billing"].lanes["jobs.lane.p7"].positions == {0: 1}
    assert backend.admin.topic("jobs.lane.p7").config["message.timestamp.type"] == "LogAppendTime"


def test_one_with_other_partitions_is_made_again_only_if_it_is_empty(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    ps.create_topic("jobs", partitions=2, priorities=10)
    backend.admin.create_topic("jobs.lane.p7", 1, None, {})
    backend.admin.create_topic("jobs.lane.p8", 1, None, {})
    cluster.append("jobs.lane.p8", 0, b"somebody's")
    assert publish(ps, priority=7).startswith("jobs.lane.p7:")
    assert backend.admin.topic("jobs.lane.p7").partitions == 2
    with pytest.raises(FailedPrecondition, match=r"'jobs\.lane\.p8' has 1 partitions and must have 2"):
        publish(ps, priority=8)
    assert publish(ps).startswith("jobs:")


def test_a_lane_that_kafkas_metrics_confuse_with_a_topic_is_refused(ps: PubSub) -> None:
    ps.create_topic("jobs", priorities=10)
    ps.create_topic("jobs_lane_p7")
    with pytest.raises(
        InvalidArgument, match=r"lane 'jobs\.lane\.p7' can't be told from topic 'jobs_lane_p7'"
    ):
        publish(ps, priority=7)


def test_a_lane_that_was_deleted_or_made_again_is_refused_by_a_new_publisher(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    ps.create_topic("jobs", partitions=1, priorities=10)
    publish(ps, priority=7)
    backend.admin.delete_topic("jobs.lane.p7")
    with another(cluster) as other:
        with pytest.raises(FailedPrecondition, match=r"lane 'jobs\.lane\.p7' of topic 'jobs' was deleted"):
            publish(other, priority=7)
        backend.admin.create_topic("jobs.lane.p7", 1, None, {})
        with pytest.raises(FailedPrecondition, match="made again"):
            publish(other, priority=7)
        assert publish(other) == "jobs:0:0"


def test_a_lane_with_other_partitions_than_its_topic_is_refused(ps: PubSub, cluster: MemoryCluster) -> None:
    ps.create_topic("jobs", partitions=1, priorities=10)
    publish(ps, priority=7)
    cluster.add_partitions("jobs.lane.p7", 2)
    with (
        another(cluster) as other,
        pytest.raises(FailedPrecondition, match=r"was given 2 partitions.*must have 1, as many as the topic"),
    ):
        publish(other, priority=7)


# -- the end -----------------------------------------------------------------------------------------------------
