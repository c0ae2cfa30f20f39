"""A fault of a single partition of a service, or of a home topic, stops no other partition."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import DEAD, INGEST
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import (
    BrokerUnavailable,
    FailedPrecondition,
    PermissionDenied,
    PubSubError,
)
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.multicast import layout as sequencers
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.services import troubles
from kafka_pubsub.services.lifecycle import ServiceState
from kafka_pubsub.services.sending import Share
from tests.support import until
from tests.unit.delays.test_role import bodies

TIERS = 3


def key_in(topic: str, partition: int) -> str:
    """A key whose delayed messages come in through this partition of two."""
    return next(
        key for key in map(str, range(99)) if partition_of(f"{topic}\0{key}".encode(), 2) == partition
    )


class Away(FaultPlan):
    """A single topic takes no records until it is `back`; `slow`: the log thinks for so long."""

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


@pytest.mark.parametrize("error", [PermissionDenied("no right to write"), BrokerUnavailable("no leader")])
def test_a_home_topic_that_takes_no_messages_stops_no_other_one_in_its_partition(error: PubSubError) -> None:
    """Another router takes over meanwhile: what waits is home once, and in its order."""
    away = Away("bad", error)
    backend = MemoryBackend(faults=away)
    with PubSub.in_memory(backend, services=False) as ps:
        good, bad = ps.create_topic("good", partitions=1), ps.create_topic("bad", partitions=1)
        sent = []
        for first in (0, 10):
            with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
                for number in range(first, first + 10):
                    sent.append(b"%d" % number)
                    for topic in (bad, good):
                        topic.publish(sent[-1], ordering_key="k", delay=0.01).result(10)
                until(lambda: bodies(backend, "good") == sent)
                until(lambda: router.health().error == f"topic 'bad' refuses a record: {error}")
                assert [each.data for each in ps.delays.waiting(bodies=True)] == sent
        cancelled = bad.publish(b"cancelled", ordering_key="k", delay=0.5).result(10)
        with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
            assert ps.delays.cancel(cancelled)
            good.publish(b"behind", ordering_key="k", delay=1).result(10)
            until(lambda: bodies(backend, "good")[-1] == b"behind")
        assert bodies(backend, "bad") == []
        with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
            away.back.set()
            until(lambda: bodies(backend, "bad") == sent)
            until(lambda: router.health().ok)
        assert bodies(backend, "good") == [*sent, b"behind"]
        assert bodies(backend, DEAD) == []


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
            until(lambda: away.tries > 4)  # its pauses double
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


def test_while_records_are_held_back_a_partition_keeps_its_error_and_its_transactions_grow() -> None:
    wrong, share = troubles.Troubles(), Share(("orders",), 0)
    trouble = wrong.fail(share, "no leader")
    trouble.unstored = True
    wrong.halve(trouble, 0.5)
    wrong.begun(share)
    wrong.stored(share, 9, quick=True, waits=True)
    assert (wrong.error, wrong.part_of(share)) == ("no leader", 0.5)
    assert share in wrong.alone()
    wrong.stored(share, 9, quick=True)
    assert wrong.error == ""
