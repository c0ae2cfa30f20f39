"""Partitions that cannot begin, and topics that a service cannot see."""

from __future__ import annotations

import threading
import time

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import GROUP, INGEST, tier_topic
from kafka_pubsub.delays.progress import IngestProgress
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    PubSubError,
)
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.services import engine
from kafka_pubsub.services.lifecycle import ServiceState
from tests.support import until
from tests.unit.delays.test_role import bodies
from tests.unit.services.test_troubles import TIERS, key_in


class NoLeader(FaultPlan):
    """A partition has no leader."""

    def __init__(self, place: TopicPartition) -> None:
        self.place: TopicPartition | None = place

    def away(self, partition: TopicPartition) -> PubSubError | None:
        return BrokerUnavailable("no leader") if partition == self.place else None


def test_a_partition_that_cannot_begin_is_tried_again_and_the_others_go_on() -> None:
    faults = NoLeader(TopicPartition(tier_topic(1), 1))
    backend = MemoryBackend(faults=faults)
    with PubSub.in_memory(backend, services=False) as ps:
        good = ps.create_topic("good", partitions=1)
        with DelayRouter(ps, tiers=TIERS, partitions=2) as router:
            for number in range(2):
                good.publish(b"%d" % number, ordering_key=key_in("good", number), delay=0.01).result(10)
            until(lambda: bodies(backend, "good") == [b"0"])
            until(lambda: f"partition 1 of topic {tier_topic(1)!r} has no leader" in router.health().error)
            faults.place = None
            until(lambda: bodies(backend, "good") == [b"0", b"1"])
            until(lambda: router.health().ok)
            assert router.health().partitions == 2


def test_a_partition_of_which_unread_records_were_deleted_waits_and_the_others_go_on() -> None:
    backend = MemoryBackend()
    with PubSub.in_memory(backend, services=False) as ps:
        good = ps.create_topic("good", partitions=1)
        keys = [key_in("good", number) for number in range(2)]
        with DelayRouter(ps, tiers=TIERS, partitions=2):
            for number, key in enumerate(keys):
                good.publish(b"%d" % number, ordering_key=key, delay=0.01).result(10)
            until(lambda: len(bodies(backend, "good")) == 2)
        good.publish(b"deleted", ordering_key=keys[1], delay=0.01).result(10)
        backend.admin.trim(INGEST, {1: backend.admin.log_range(TopicPartition(INGEST, 1))[1]})
        with DelayRouter(ps, tiers=TIERS, partitions=2) as router:
            until(lambda: INGEST in router.health().error)
            before = router._engine
            good.publish(b"2", ordering_key=keys[0], delay=0.01).result(10)
            until(lambda: bodies(backend, "good")[2:] == [b"2"])
            assert router._engine is before, "the others don't begin again"


class StuckOwner(FaultPlan):
    """A dead owner's transaction can't be ended."""

    def __init__(self) -> None:
        self.stuck = True
        self.asked: list[str] = []

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation != "fence" or not name.startswith("dead"):
            return None
        self.asked.append(name)
        return DeadlineExceeded(f"{name} is stuck") if self.stuck and name == "dead-1" else None


def test_a_dead_owner_whose_transaction_is_not_ended_holds_up_its_own_partitions_only() -> None:
    faults = StuckOwner()
    backend = MemoryBackend(faults=faults)
    with PubSub.in_memory(backend, services=False) as ps:
        good = ps.create_topic("good", partitions=1)
        ps._cluster.delay_topics.make(TIERS, 2)
        owned = {
            TopicPartition(INGEST, n): Committed(0, IngestProgress(0, 0).text(f"dead-{n}")) for n in range(2)
        }
        backend.admin.set_positions(GROUP, owned)
        with DelayRouter(ps) as router:
            for number in range(2):
                good.publish(b"%d" % number, ordering_key=key_in("good", number), delay=0.01).result(10)
            until(lambda: bodies(backend, "good") == [b"0"])
            until(lambda: router.health().error == "dead-1 is stuck")
            assert faults.asked.count("dead-0") == 1, "it isn't asked for again because of the other one"
            faults.stuck = False
            until(lambda: bodies(backend, "good") == [b"0", b"1"])
            until(lambda: router.health().ok)


class HangingFence(StuckOwner):
    """The log doesn't end that transaction before the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.end = threading.Event()

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation == "fence" and name == "dead-1":
            self.end.wait(60)
        return None


def test_nothing_waits_for_the_log_to_end_a_dead_owners_transaction_but_its_own_partitions() -> None:
    faults = HangingFence()
    backend = MemoryBackend(faults=faults)
    with PubSub.in_memory(backend, services=False) as ps:
        good = ps.create_topic("good", partitions=1)
        ps._cluster.delay_topics.make(TIERS, 2)
        owned = {
            TopicPartition(INGEST, n): Committed(0, IngestProgress(0, 0).text(f"dead-{n}")) for n in range(2)
        }
        backend.admin.set_positions(GROUP, owned)
        with DelayRouter(ps) as router:
            for number in range(2):
                good.publish(b"%d" % number, ordering_key=key_in("good", number), delay=0.01).result(10)
            until(lambda: bodies(backend, "good") == [b"0"])
            until(lambda: "dead-1: the log hasn't ended its transaction yet" in router.health().error)
            assert not faults.end.is_set()
            faults.end.set()
            until(lambda: bodies(backend, "good") == [b"0", b"1"])
            until(lambda: router.health().ok)


class RaisesOnce(FaultPlan):
    """The list of topics can't be read now and then; the catalog neither."""

    def __init__(self) -> None:
        self.broken = False
        self.asked = 0

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation not in ("topic_names", "topics") or not self.broken:
            return None
        self.asked += 1
        return BrokerUnavailable("the catalog has no leader")


def test_a_service_that_cannot_look_for_new_topics_serves_those_it_knows() -> None:
    faults = RaisesOnce()
    backend = MemoryBackend(faults=faults)
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as ps:
        ps.create_topic("a", causal=True)
        with PubSub.in_memory(backend, services=False) as other, Sequencer(other) as sequencer:
            sequencer.wait_until_running()
            faults.broken = True
            until(lambda: faults.asked > 1)
            began = time.monotonic()
            ps.publish_multi(["a"], b"x").result(10)
            assert time.monotonic() - began < 5
            assert sequencer.health().state is ServiceState.RUNNING
            faults.broken = False
            until(lambda: sequencer.health().ok)


def test_a_service_without_topics_that_began_in_an_outage_is_well_when_the_outage_is_over() -> None:
    faults = RaisesOnce()
    faults.broken = True
    with (
        PubSub.in_memory(MemoryBackend(faults=faults), services=False) as ps,
        Sequencer(ps) as sequencer,
    ):
        until(lambda: "the catalog has no leader" in sequencer.health().error)
        faults.broken = False
        until(lambda: sequencer.health().ok, patience=5.0)


@pytest.mark.parametrize("topics", [[], ["a"]])
def test_a_service_that_stores_nothing_forgets_an_outage_that_is_over(
    monkeypatch: pytest.MonkeyPatch, topics: list[str]
) -> None:
    monkeypatch.setattr(engine, "_FORGET", 0.2)
    faults = RaisesOnce()
    with PubSub.in_memory(MemoryBackend(faults=faults), services=False) as ps:
        for topic in topics:
            ps.create_topic(topic, causal=True)
        with Sequencer(ps) as sequencer:
            until(lambda: sequencer.health().ok)
            faults.broken = True
            until(lambda: "the catalog has no leader" in sequencer.health().error)
            faults.broken = False
            until(lambda: sequencer.health().ok, patience=5.0)
