"""Partitions are added while messages wait, in memory: nothing is lost, doubled or early, and keys stay in order."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays import role as delay_role
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.delays.homes import Homes
from kafka_pubsub.delays.layout import DEAD, INGEST, tier_topic
from kafka_pubsub.delays.records import DELAY_HEADER, DelayRequest, encode_request
from kafka_pubsub.delays.role import DelayRole
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.delays.topics import DelayTopics
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import NewRecord
from kafka_pubsub.services.engine import Engine
from kafka_pubsub.services.metrics import ServiceMetrics
from tests.support import until
from tests.unit.delays.test_role import bodies

SMALL = DelayDeclaration(tiers=4, partitions=2)
GROWN = DelayDeclaration(tiers=4, partitions=6)


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has routers learn of the growth soon."""
    monkeypatch.setattr(delay_role, "_LOOK", 0.05)
    monkeypatch.setattr(delay_role, "_LOOK_AGAIN", 0.05)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)


def counts(backend: MemoryBackend) -> set[int]:
    return {backend.admin.topic(each).partitions for each in (INGEST, *map(tier_topic, range(4)))}


def publish(ps: PubSub, numbers: range, delay: float) -> list[bytes]:
    topic = ps.topic("orders")
    sent = [b"%d %d" % (n % 8, n) for n in numbers]
    futures = [topic.publish(each, ordering_key=each.split()[0].decode(), delay=delay) for each in sent]
    for future in futures:
        future.result(10)
    return sent


def check_home(backend: MemoryBackend, sent: list[bytes]) -> None:
    """Each came once, those of a key in the order in which they were due."""
    found = [each or b"" for each in bodies(backend)]
    assert sorted(found) == sorted(sent)
    for key in {each.split()[0] for each in sent}:
        ours = [each for each in found if each.split()[0] == key]
        assert ours == [each for each in sent if each.split()[0] == key]


@pytest.mark.parametrize("routers", [1, 3])
def test_partitions_are_added_while_messages_wait(ps: PubSub, backend: MemoryBackend, routers: int) -> None:
    ps.create_topic("orders", partitions=3)
    topology = ps._cluster.topology
    topology.apply(SMALL)
    with ExitStack() as running:
        all_routers = [running.enter_context(DelayRouter(ps)) for _ in range(routers)]
        sent = publish(ps, range(40), 2.0)
        changes = topology.apply(GROWN)
        assert {each.topic for each in changes} == {INGEST, *map(tier_topic, range(4))}
        assert counts(backend) == {6}
        assert topology.apply(GROWN) == [], "applied once more nothing happens"
        sent += publish(ps, range(40, 80), 1.2)
        ps._cluster.delayed.publisher.renew()
        sent += publish(ps, range(80, 120), 1.5)
        until(lambda: len(bodies(backend)) == len(sent))
        until(lambda: sum(each.health().partitions for each in all_routers) == 6)
        assert all(each.health().partitions for each in all_routers), "no router is idle"
    assert sorted(each or b"" for each in bodies(backend)) == sorted(sent)


def test_keys_stay_in_order_across_the_growth(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=3)
    ps._cluster.topology.apply(SMALL)
    sent = publish(ps, range(40), 1.0)
    with DelayRouter(ps), DelayRouter(ps):
        growing = threading.Thread(target=ps._cluster.topology.apply, args=(GROWN,))
        growing.start()
        for n in range(40, 400, 40):
            sent += publish(ps, range(n, n + 40), 1.0)
            ps._cluster.delayed.publisher.renew()
        growing.join()
        ps._cluster.delayed.publisher.renew()
        sent += publish(ps, range(400, 440), 1.0)
        until(lambda: len(bodies(backend)) == len(sent))
    check_home(backend, sent)


def test_without_routers_the_commits_name_the_growth(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=1)
    ps._cluster.topology.apply(SMALL)
    sent = publish(ps, range(20), 0.5)
    ps._cluster.topology.apply(GROWN)
    ps._cluster.delayed.publisher.renew()
    sent += publish(ps, range(20, 40), 0.5)
    with DelayRouter(ps):
        until(lambda: len(bodies(backend)) == len(sent))
    check_home(backend, sent)


def test_cancelling_and_looking_work_in_added_partitions(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders", partitions=1)
    ps._cluster.topology.apply(SMALL)
    with DelayRouter(ps):
        before = topic.publish(b"before", ordering_key="0", delay=9).result(10)
        ps._cluster.topology.apply(GROWN)
        assert topic.cancel(topic.publish(b"former", ordering_key="0", delay=9).result(10))
        ps._cluster.delayed.publisher.renew()
        after = [topic.publish(b"after", ordering_key=str(n), delay=9).result(10) for n in range(12)]
        assert {each.split(":")[1] for each in after} > {"0", "1"}
        assert {each.id for each in ps.delays.waiting()} == {before, *after}
        assert all(topic.cancel(each) for each in (before, *after))
        assert not list(ps.delays.waiting())


def test_a_number_that_cannot_be_is_refused_with_what_to_write(ps: PubSub) -> None:
    topology = ps._cluster.topology
    topology.apply(SMALL)
    with pytest.raises(FailedPrecondition, match="declare 4 or another multiple"):
        topology.apply(DelayDeclaration(tiers=4, partitions=3))
    with pytest.raises(FailedPrecondition, match="declare 2 or a multiple"):
        topology.apply(DelayDeclaration(tiers=4, partitions=1))
    topology.apply(GROWN)
    with pytest.raises(FailedPrecondition, match="they grow from 2 to 6"):
        topology.apply(DelayDeclaration(tiers=4, partitions=12))


def test_the_topic_of_dead_letters_keeps_its_number(ps: PubSub, backend: MemoryBackend) -> None:
    """A router of an older version asks that all topics have equal numbers, and so refuses to begin."""
    ps._cluster.topology.apply(SMALL)
    ps._cluster.topology.apply(GROWN)
    assert backend.admin.topic(DEAD).partitions == 2
    DelayTopics(backend.admin, backend.catalog, may_create=True).make()
    record = backend.catalog.delays()
    assert record is not None
    assert (record.former, record.partitions) == (2, 6)
    backend.catalog.put_delays(record.model_copy(update={"over": True}), record)
    with pytest.raises(FailedPrecondition, match="has 2 partitions and must have 6"):
        DelayTopics(backend.admin, backend.catalog, may_create=True).make()


def moving_key() -> str:
    """A key that goes to an added partition."""
    return next(key for key in map(str, range(99)) if partition_of(b"orders\0" + key.encode(), 6) >= 2)


def publish_late(ps: PubSub, key: str, body: bytes, delay: int) -> None:
    """Publishes as a process does that hasn't learnt of the growth."""
    backend, full = ps._cluster.backend, b"orders\0" + key.encode()
    partition = partition_of(full, 2)
    request = DelayRequest(Homes(backend).address("orders"), None, delay)
    headers = [(DELAY_HEADER, encode_request(request))]
    writer = backend.transactions("late")
    writer.transact([NewRecord(INGEST, partition, full, body, headers, 0)], {}, None)
    writer.close()


@pytest.mark.parametrize("still", ["added", "former"])
def test_a_partition_that_stands_still_holds_up_the_keys_that_it_shares(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch, still: str
) -> None:
    topic, key = ps.create_topic("orders", partitions=1), moving_key()
    ps._cluster.topology.apply(SMALL)
    stands, begin = [True], DelayRole.begin
    look_often(monkeypatch)

    def begin_later(self: DelayRole, topics: Any, number: int, beginnings: Any, writer: str) -> Any:
        if stands and (number >= 2) == (still == "added"):
            raise FailedPrecondition("it stands still")
        return begin(self, topics, number, beginnings, writer)

    with DelayRouter(ps):
        publish_late(ps, key, b"0", 200)
        until(lambda: len(bodies(backend)) == 1)
        if still == "former":
            publish_late(ps, key, b"1", 2500)
        ps._cluster.topology.apply(GROWN)
    monkeypatch.setattr(DelayRole, "begin", begin_later)
    ps._cluster.delayed.publisher.learn(6)
    if still == "added":
        assert topic.publish(b"1", ordering_key=key, delay=0.5).result(10).split(":")[1] >= "2"
        publish_late(ps, key, b"2", 1000)
    else:
        assert topic.publish(b"2", ordering_key=key, delay=2.6).result(10).split(":")[1] >= "2"
    due = time.monotonic() + (1.0 if still == "added" else 2.6)
    with DelayRouter(ps) as router:
        until(lambda: time.monotonic() > due + 0.5 and "it stands still" in router.health().error)
        assert bodies(backend) == [b"0"]
        stands.clear()
        until(lambda: len(bodies(backend)) == 3)
    assert bodies(backend) == [b"0", b"1", b"2"]


def test_a_router_that_does_not_know_of_the_growth_begins_nothing(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=1)
    ps._cluster.topology.apply(SMALL)
    publish(ps, range(4), 0.1)
    layout = DelayTopics(backend.admin, backend.catalog, may_create=True).make()
    ps._cluster.topology.apply(GROWN)
    role = DelayRole(backend, layout.tiers, layout.partitions, ServiceMetrics())
    engine = Engine(backend, role, role.metrics)
    engine.start()

    def is_refused() -> bool:
        engine.turn()
        return "this router has found 2: it looks again" in role.metrics.error

    until(is_refused)
    assert not engine.tasks
    until(lambda: engine.outdated)
    engine.close()
