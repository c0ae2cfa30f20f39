"""What is wrong with one partition of a service, or with one home topic, stops no other partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import DEAD, GROUP, INGEST, tier_topic
from kafka_pubsub.delays.progress import IngestProgress
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    PermissionDenied,
    PubSubError,
)
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, RequestOutcome, Step
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.multicast import layout as sequencers
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.services import troubles
from kafka_pubsub.services.lifecycle import ServiceState
from tests.support import until
from tests.unit.delays.test_role import bodies

TIERS = 3


def key_in(topic: str, partition: int) -> str:
    """A key whose delayed messages come in through this partition of two."""
    return next(
        key for key in map(str, range(99)) if partition_of(f"{topic}\0{key}".encode(), 2) == partition
    )


class Away(FaultPlan):
    """One topic takes no records until it is `back`; `slow`: the log thinks about it for so long."""

    def __init__(self, topic: str, error: PubSubError, *, slow: bool = False) -> None:
        self.topic, self.error = topic, error
        self.back = threading.Event()
        self.tries = 0
        self._slow = slow

    def refuses(self, transactional_id: str, topic: str, key: bytes | None) -> PubSubError | None:
        if topic != self.topic or self.back.is_set():
            return None
        self.tries += 1
        if self._slow and self.tries > 1:
            self.back.wait(30)
        return self.error


@pytest.mark.parametrize(
    "away",
    [
        Away("bad", PermissionDenied("no right to write to topic 'bad'")),
        Away("bad", BrokerUnavailable("no leader"), slow=True),
    ],
    ids=["no right", "no leader"],
)
def test_a_home_topic_that_takes_no_messages_stops_no_other_partition(away: Away) -> None:
    backend = MemoryBackend(faults=away)
    with PubSub.in_memory(backend, services=False) as ps:
        good, bad = ps.create_topic("good", partitions=1), ps.create_topic("bad", partitions=1)
        with DelayRouter(ps, tiers=TIERS, partitions=2) as router:
            bad.publish(b"waits", ordering_key=key_in("bad", 1), delay=0.01).result(10)
            until(lambda: away.tries > 1)
            for number in range(20):
                good.publish(b"%d" % number, ordering_key=key_in("good", 0), delay=0.01).result(10)
            until(lambda: len(bodies(backend, "good")) == 20, patience=10)
            assert router.health().error == f"topic 'bad' refuses a record: {away.error}"
            assert not router.health().ok
            assert router.health().state is ServiceState.RUNNING
            away.back.set()
            until(lambda: bodies(backend, "bad") == [b"waits"])
            until(lambda: router.health().ok)
        assert bodies(backend, DEAD) == []
        assert "dead" not in router.metrics()


def test_while_a_home_topic_is_away_no_ticks_pile_up() -> None:
    away = Away("bad", BrokerUnavailable("no leader"))
    backend = MemoryBackend(faults=away)
    place = TopicPartition(INGEST, 0)
    with PubSub.in_memory(backend, services=False) as ps:
        bad = ps.create_topic("bad", partitions=1)
        with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
            bad.publish(b"waits", ordering_key="k", delay=0.3).result(10)
            bad.publish(b"later", ordering_key="k", delay=3).result(10)
            until(lambda: away.tries > 1)
            before = backend.admin.log_range(place)[1]
            until(lambda: away.tries > 6)
            assert backend.admin.log_range(place)[1] - before <= away.tries, "one a try at most: it asks once"
            assert router.metrics().get("ticks", 0) < 12
            away.back.set()
            until(lambda: bodies(backend, "bad") == [b"waits", b"later"])


def test_a_partition_that_failed_goes_alone_for_a_while_and_then_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(troubles, "ALONE", 0.5)
    away = Away("bad", BrokerUnavailable("no leader"))
    backend = MemoryBackend(faults=away)
    with PubSub.in_memory(backend, services=False) as ps:
        bad = ps.create_topic("bad", partitions=1)
        with DelayRouter(ps, tiers=TIERS, partitions=2) as router:
            bad.publish(b"1", ordering_key="k", delay=0.01).result(10)
            until(lambda: away.tries > 2)
            away.back.set()
            until(lambda: bodies(backend, "bad") == [b"1"])
            engine = router._engine
            assert engine is not None
            assert engine._sendings.alone
            until(lambda: not engine._sendings.alone)
            bad.publish(b"2", ordering_key="k", delay=0.01).result(10)
            until(lambda: bodies(backend, "bad") == [b"1", b"2"])


class AwayAndNoted(Away):
    """The same; `ids`: under which transactional ids the topic was written to."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic, PermissionDenied("no right to write to it"))
        self.ids: list[str] = []

    def refuses(self, transactional_id: str, topic: str, key: bytes | None) -> PubSubError | None:
        if topic == self.topic:
            self.ids.append(transactional_id)
        return super().refuses(transactional_id, topic, key)

    @property
    def with_others(self) -> int:
        """Tries in a transaction that others may take part in."""
        return sum("-apart-" not in each for each in self.ids)


@pytest.mark.parametrize("how", ["evicted", "new engine"])
def test_a_partition_that_comes_back_while_its_home_is_away_still_goes_alone(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(troubles, "ALONE", 0.0)
    monkeypatch.setattr(troubles, "_LONGEST_PAUSE", 0.1)
    away = AwayAndNoted("bad")
    backend = MemoryBackend(faults=away)
    with PubSub.in_memory(backend, services=False) as ps:
        for name in ("good", "bad"):
            ps.create_topic(name, causal=True)
        with Sequencer(ps) as sequencer:
            sequencer.wait_until_running()
            waits = ps.publish_multi(["bad"], b"waits")
            until(lambda: away.tries > 1)
            assert away.with_others == 1
            engine = sequencer._engine
            assert engine is not None
            lost = engine.lost if how == "evicted" else engine.close
            monkeypatch.setattr(engine, lost.__name__, _calls_noted(lost, over := threading.Event()))
            if how == "evicted":
                backend.cluster.evict(sequencers.GROUP)
            else:
                engine._fatal = FailedPrecondition("its membership is over")
            until(over.is_set)
            before = away.tries
            until(lambda: away.tries > before + 2)
            assert away.with_others == 1, "the others would wait for it again"
            ps.publish_multi(["good"], b"x").result(10)
            away.back.set()
            waits.result(10)
            until(lambda: sequencer.health().ok)


def _calls_noted(call: Callable[..., None], noted: threading.Event) -> Callable[..., None]:
    def noting(*args: object, **options: object) -> None:
        call(*args, **options)
        noted.set()

    return noting


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
            engine = router._engine
            good.publish(b"2", ordering_key=keys[0], delay=0.01).result(10)
            until(lambda: bodies(backend, "good")[2:] == [b"2"])
            assert router._engine is engine, "the others don't begin again"


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
    """The log takes its time to end that transaction, until it is told to."""

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


class SmallTransactions(FaultPlan):
    """A transaction of more than `most` records gets no answer in time."""

    def __init__(self, most: int) -> None:
        self.most, self.written = most, 0

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if step is Step.WRITE:
            self.written += 1
            return RequestOutcome.DONE if self.written <= self.most else RequestOutcome.ANSWER_LOST
        self.written = 0
        return RequestOutcome.DONE


def test_a_transaction_that_gets_no_answer_is_halved_until_it_does() -> None:
    backend = MemoryBackend(faults=SmallTransactions(30))
    with PubSub.in_memory(backend, services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        ps._cluster.delay_topics.make(TIERS, 1)
        for number in range(300):
            topic.publish(b"%d" % number, ordering_key="k", delay=0.01)
        topic.flush(10)
        with DelayRouter(ps) as router:
            until(lambda: len(bodies(backend)) == 300)
            assert router.metrics()["aborted"] > 0
    assert bodies(backend) == [b"%d" % number for number in range(300)]


def test_a_transaction_is_bounded_in_bytes(backend: MemoryBackend, ps: PubSub) -> None:
    topic = ps.create_topic("orders", partitions=1)
    ps._cluster.delay_topics.make(TIERS, 1)
    for number in range(60):
        topic.publish(bytes(900_000), ordering_key=f"k{number}", delay=0.01)
    topic.flush(30)
    with DelayRouter(ps) as router:
        until(lambda: len(bodies(backend)) == 60)
        assert router.metrics()["transactions"] >= 60 * 900_000 / (16 * 1024 * 1024)


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
