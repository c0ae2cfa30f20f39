"""Tiers that were made otherwise than by default: they work, or are refused with advice."""

from __future__ import annotations

from typing import ClassVar

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.delays.layout import DEAD, INGEST, SMALL_PARTITIONS, DelayLayout, tier_topic
from kafka_pubsub.delays.plan import ChangeKind
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.services import lifecycle
from kafka_pubsub.services.metrics import ServiceMetrics
from tests.support import until
from tests.unit.delays.test_role import bodies

TIERS = 3


def test_a_cluster_whose_delays_have_more_partitions_than_the_default_goes_on(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("orders", partitions=2)
    ps._cluster.delay_topics.make(TIERS, 2 * SMALL_PARTITIONS)
    with DelayRouter(ps) as router:
        until(lambda: router.health().partitions == 2 * SMALL_PARTITIONS)
        ids = [topic.publish(b"%d" % n, ordering_key=f"k{n}", delay=1.1).result(10) for n in range(20)]
        late = topic.publish(b"late", ordering_key="k1", delay=6).result(10)
        assert topic.cancel(late)
        until(lambda: sorted(map(str, bodies(backend))) == sorted(f"b'{n}'" for n in range(20)))
    assert len({each.split(":")[1] for each in ids}) > SMALL_PARTITIONS, "all partitions are used"
    (refused, *others) = ps._cluster.topology.plan(DelayDeclaration(tiers=TIERS, partitions=2))
    assert refused.kind is ChangeKind.REFUSED
    assert refused.text.endswith(f"declare {2 * SMALL_PARTITIONS} or a multiple of it")
    assert {each.text for each in others} == {refused.text}
    assert ps._cluster.topology.plan(DelayDeclaration(tiers=TIERS, partitions=2 * SMALL_PARTITIONS)) == []


@pytest.mark.parametrize("topic", [INGEST, tier_topic(1), DEAD])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1"),
        ("max.message.bytes", "1048588"),
        ("message.timestamp.before.max.ms", "3600000"),
        ("message.timestamp.after.max.ms", "3600000"),
    ],
)
def test_a_setting_that_would_lose_messages_or_refuse_them_is_named_and_repaired(
    ps: PubSub, backend: MemoryBackend, topic: str, setting: str, value: str
) -> None:
    ps._cluster.delay_topics.make(TIERS, 1)
    backend.admin.update_topic(topic, {setting: value})
    wanted = DelayLayout().settings[setting]
    with pytest.raises(FailedPrecondition) as refused:
        ps._cluster.delay_topics.make()
    assert f"topic {topic!r} has {setting}={value} and must have {wanted}" in refused.value.message
    assert "kafka-pubsub topology apply" in refused.value.message
    ps._cluster.topology.apply(DelayDeclaration(tiers=TIERS, partitions=1))
    assert ps._cluster.delay_topics.make() == DelayLayout(TIERS, 1)


def test_tiers_that_carry_the_brokers_time_or_take_larger_records_do_no_harm(
    ps: PubSub, backend: MemoryBackend
) -> None:
    """When a record leaves its tier is said by its header."""
    topic = ps.create_topic("orders")
    layout = ps._cluster.delay_topics.make(TIERS, 1)
    for name in layout.topics:
        backend.admin.update_topic(
            name, {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(2**27)}
        )
    with DelayRouter(ps) as router:
        router.wait_until_running()
        topic.publish(b"later", ordering_key="k", delay=3.2).result(10)
        topic.publish(b"sooner", ordering_key="k", delay=1.1).result(10)
        until(lambda: bodies(backend) == [b"sooner", b"later"])


class Noted(ServiceMetrics):
    """Notes each error that is set, also for a moment only."""

    errors: ClassVar[list[str]] = []

    def __setattr__(self, name: str, value: object) -> None:
        if name == "error":
            self.errors.append(str(value))
        super().__setattr__(name, value)


def test_a_tier_that_refuses_a_hop_is_named_as_long_as_it_does(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes on meanwhile, so that no order is broken."""
    monkeypatch.setattr(lifecycle, "ServiceMetrics", Noted)
    topic = ps.create_topic("orders")
    with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
        router.wait_until_running()
        limit = DelayLayout().settings["max.message.bytes"]
        backend.admin.update_topic(tier_topic(0), {"max.message.bytes": "100"})
        topic.publish(bytes(200), delay=1.1).result(10)
        until(lambda: f"topic {tier_topic(0)!r} refuses a record" in router.health().error)
        Noted.errors.clear()
        aborted = router.metrics()["aborted"]
        until(lambda: router.metrics()["aborted"] > aborted + 3)
        assert "" not in Noted.errors, "the positions that are stored between two tries heal nothing"
        backend.admin.update_topic(tier_topic(0), {"max.message.bytes": limit})
        until(lambda: bodies(backend) == [bytes(200)])
        until(lambda: router.health().ok)
