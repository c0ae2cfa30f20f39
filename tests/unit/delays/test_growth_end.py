"""A growth of the delays ends when nothing from before it waits, also if each of its steps is interrupted once."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays import drained, plan, progress
from kafka_pubsub.delays import role as delay_role
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.delays.layout import DEAD, GROUP, INGEST
from kafka_pubsub.delays.plan import Change, ChangeKind, Topology
from kafka_pubsub.delays.progress import parse_ingest
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.delays.topics import DelayTopics
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, FailedPrecondition, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.model import Committed, TopicPartition
from tests.support import until
from tests.unit.delays.test_role import bodies
from tests.unit.delays.test_role_growing import (
    GROWN,
    SMALL,
    check_home,
    counts,
    look_often,
    moving_key,
    publish,
    publish_late,
)

LARGE = DelayDeclaration(tiers=4, partitions=12)


def end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has routers learn of the growth soon, and publishers count as having learnt at once."""
    look_often(monkeypatch)
    monkeypatch.setattr(drained, "LEARN", 0.0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    end_soon(monkeypatch)


def kinds(changes: list[Change]) -> list[ChangeKind]:
    return [each.kind for each in changes]


def as_version_4(stored: Committed) -> Committed:
    """The same commit without the times of those that share keys."""
    offset = stored.offset
    version, *fields, _ = stored.metadata.split(";")
    assert version == "5"
    body = ";".join(("4", *fields[:5], *fields[8:]))
    return Committed(offset, f"{body};{zlib.crc32(f'{offset};{body}'.encode()):08x}")


def growing(topology: Topology) -> str:
    """Why the growth isn't over; empty if it is."""
    topology.plan(GROWN)
    return topology.growing


def wait_for_end(topology: Topology) -> None:
    until(lambda: kinds(topology.plan(GROWN)) == [ChangeKind.END])


def test_a_growth_is_over_when_nothing_from_before_waits_and_another_one_is_possible(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_soon(monkeypatch)
    ps.create_topic("orders", partitions=2)
    topology = ps._cluster.topology
    topology.apply(SMALL)
    with DelayRouter(ps):
        sent = publish(ps, range(20), 2.5)
        topology.apply(GROWN)
        assert topology.plan(GROWN) == []
        assert (
            "from 2 to 6 partitions: 20 messages from before it wait, the last one until 20"
            in topology.growing
        )
        with pytest.raises(FailedPrecondition, match="they grow from 2 to 6"):
            topology.apply(LARGE)
        ps._cluster.delayed.publisher.renew()
        later = publish(ps, range(20, 40), 9)
        until(lambda: len(bodies(backend)) == len(sent))
        wait_for_end(topology)
        assert backend.admin.topic(DEAD).partitions == 2, "a plan changes nothing"
        assert kinds([*topology.apply(GROWN)]) == [ChangeKind.END]
        assert (backend.admin.topic(DEAD).partitions, topology.plan(GROWN), topology.growing) == (6, [], "")
        assert {each.kind for each in topology.apply(LARGE)} == {ChangeKind.GROW}
        assert counts(backend) == {12}
        assert f"from 6 to 12 partitions: {len(later)} messages from before it wait" in topology.growing
        check_home(backend, sent)


def test_the_end_and_the_next_growth_are_one_call(ps: PubSub, backend: MemoryBackend) -> None:
    topology = ps._cluster.topology
    topology.apply(SMALL)
    topology.apply(GROWN)
    found = kinds([*topology.apply(LARGE)])
    assert (found[0], set(found[1:])) == (ChangeKind.END, {ChangeKind.GROW})
    assert (counts(backend), backend.admin.topic(DEAD).partitions) == ({12}, 6)


def test_publishers_have_time_to_learn(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_soon(monkeypatch)
    ps.create_topic("orders", partitions=1)
    topology, key = ps._cluster.topology, moving_key()
    topology.apply(SMALL)
    with monkeypatch.context() as before:
        before.setattr(drained, "LEARN", 900.0)
        topology.apply(GROWN)
        assert "publishers may learn of it until 20" in topology.growing
    monkeypatch.setattr(drained, "LEARN", 2.0)
    with DelayRouter(ps):
        publish_late(ps, key, b"0", 4000)
        until(lambda: "1 messages from before it wait" in growing(topology))
        until(lambda: bodies(backend) == [b"0"])
        wait_for_end(topology)


def test_what_no_router_has_read_keeps_a_growth_from_its_end(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=1)
    topology = ps._cluster.topology
    topology.apply(SMALL)
    publish(ps, range(8), 0.1)
    topology.apply(GROWN)
    assert topology.plan(GROWN) == []
    assert "8 messages from before it wait" in topology.growing


class Interrupted(FaultPlan):
    """Each step of an apply that changes something is interrupted before it, and is done the next time."""

    def __init__(self) -> None:
        self.steps = 0

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation not in ("put_delays", "add_partitions", "set_positions"):
            return None
        self.steps += 1
        return BrokerUnavailable("interrupted") if self.steps % 2 else None


@pytest.fixture
def interrupted() -> Iterator[tuple[PubSub, MemoryBackend]]:
    backend = MemoryBackend(faults=Interrupted())
    with PubSub.in_memory(backend, services=False) as ps:
        yield ps, backend


def apply_often(topology: Topology, backend: MemoryBackend, wanted: DelayDeclaration) -> int:
    """Applies until it goes through; returns how often it was interrupted. Routers may begin after each time."""
    for count in range(99):
        try:
            topology.apply(wanted)
        except BrokerUnavailable:
            DelayTopics(backend.admin, backend.catalog, may_create=True).make()
        else:
            return count
    raise AssertionError("it never goes through")


@pytest.mark.parametrize("routers", [0, 2])
def test_an_apply_that_is_interrupted_at_each_step_is_repeated(
    interrupted: tuple[PubSub, MemoryBackend], routers: int
) -> None:
    ps, backend = interrupted
    ps.create_topic("orders", partitions=2)
    topology = ps._cluster.topology
    topology.apply(SMALL)
    with ExitStack() as running:
        for _ in range(routers):
            running.enter_context(DelayRouter(ps))
        sent = publish(ps, range(16), 1.0)
        # The record, the commits if no router makes them, four tiers, ingest, and the time of that.
        assert apply_often(topology, backend, GROWN) == 7 + (not routers)
        ps._cluster.delayed.publisher.renew()
        sent += publish(ps, range(16, 32), 1.0)
        for _ in range(1 - routers):
            running.enter_context(DelayRouter(ps))
        until(lambda: len(bodies(backend)) == len(sent))
        wait_for_end(topology)
        assert apply_often(topology, backend, GROWN) == 2, "the dead letters' topic, and the record"
        assert backend.admin.topic(DEAD).partitions == 6
        assert apply_often(topology, backend, LARGE) == 7
        ps._cluster.delayed.publisher.renew()
        sent += publish(ps, range(32, 48), 1.0)
        until(lambda: len(bodies(backend)) == len(sent))
    check_home(backend, sent)


def test_a_router_that_does_not_say_that_it_knows_stops_the_growth_and_nothing_is_changed(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of an older version does; those that say it go on meanwhile."""
    ps.create_topic("orders", partitions=1)
    topology = ps._cluster.topology
    topology.apply(SMALL)
    monkeypatch.setattr(delay_role, "_LOOK", 3600.0)
    monkeypatch.setattr(plan, "_PATIENCE", 0.5)
    with DelayRouter(ps) as router:
        until(lambda: router.health().partitions == 2)
        with pytest.raises(DeadlineExceeded, match="replace routers of older versions"):
            topology.apply(GROWN)
        assert counts(backend) == {2}
        sent = publish(ps, range(8), 0.2)
        until(lambda: len(bodies(backend)) == len(sent))
    look_often(monkeypatch)
    monkeypatch.setattr(plan, "_PATIENCE", 60.0)
    with DelayRouter(ps):
        topology.apply(GROWN)
    assert counts(backend) == {6}
    check_home(backend, sent)


def test_a_router_of_an_older_version_lets_wait_what_a_newer_one_has_begun(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps.create_topic("orders", partitions=1)
    topology = ps._cluster.topology
    topology.apply(SMALL)
    with DelayRouter(ps):
        topology.apply(GROWN)
        ps._cluster.delayed.publisher.renew()
        sent = publish(ps, range(24), 0.2)
        until(lambda: len(bodies(backend)) == len(sent))
    late = publish(ps, range(24, 48), 0.2)
    with monkeypatch.context() as older:
        older.setattr(progress, "_OF_INGEST", progress._OF_INGEST[:-1])
        with DelayRouter(ps) as router:
            until(lambda: "a newer kafka_pubsub has written it; update this process" in router.health().error)
            assert not router.health().ok
    assert len(bodies(backend)) == len(sent)
    with DelayRouter(ps):
        until(lambda: len(bodies(backend)) == len(sent + late))
    check_home(backend, sent + late)


def test_a_commit_of_an_older_version_is_taken_over(ps: PubSub, backend: MemoryBackend) -> None:
    """The routers of the older version have ended, and the growth is applied before newer ones run."""
    ps.create_topic("orders", partitions=1)
    topology = ps._cluster.topology
    topology.apply(SMALL)
    with DelayRouter(ps):
        sent = publish(ps, range(24), 0.2)
        until(lambda: len(bodies(backend)) == len(sent))
    places = [TopicPartition(INGEST, number) for number in range(2)]
    stored = backend.admin.unstable_offsets(GROUP, places)
    older = {place: as_version_4(stored[place]) for place in places}
    backend.admin.set_positions(GROUP, older)
    topology.apply(GROWN)
    said = backend.admin.unstable_offsets(GROUP, places)
    assert {parse_ingest(each.offset or 0, each.metadata).partitions for each in said.values()} == {6}
    sent += publish(ps, range(24, 48), 0.2)
    with DelayRouter(ps):
        until(lambda: len(bodies(backend)) == len(sent))
    check_home(backend, sent)
