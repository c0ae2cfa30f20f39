"""Partitions are added to the delays while messages wait and routers are killed: each is home once, in order."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.delays import drained
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.delays.layout import DEAD, INGEST
from kafka_pubsub.delays.plan import ChangeKind
from kafka_pubsub.local.broker import LocalKafka
from tests.integration.delays.home import Home
from tests.seeds import DEEP
from tests.support import until

pytestmark = pytest.mark.slow

FORMER, ADDED = DelayDeclaration(tiers=7, partitions=2), DelayDeclaration(tiers=7, partitions=12)

#: By the id of a message: its key, when it is due in milliseconds, and its number.
Sent = dict[str, tuple[str, int, int]]


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as pubsub:
        yield pubsub


class Routers:
    """Routers in processes of their own."""

    def __init__(self, ps: PubSub) -> None:
        self._command = [sys.executable, "-m", "kafka_pubsub", "--bootstrap", ps._cluster.backend.address]
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        self.started.append(subprocess.Popen([*self._command, "service", "router"]))
        return self.started[-1]

    def __enter__(self) -> Routers:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.started:
            process.kill()
            process.wait()


def publish(topic: Topic, count: int, sent: Sent, first: float, spread: float) -> None:
    """Publishes messages that are due `first` seconds from now at least, in no order."""
    now = datetime.now(UTC).replace(microsecond=0)
    futures = []
    keys = max(40, count // 100)
    for n in range(len(sent), len(sent) + count):
        at = now + timedelta(seconds=first, milliseconds=n * 7919 % round(spread * 1000))
        key = f"k{n % keys}"
        due = round(at.timestamp() * 1000)
        futures.append((topic.publish(b"%d" % n, ordering_key=key, deliver_at=at), (key, due, n)))
    topic.flush(120)
    sent.update((future.result(), said) for future, said in futures)


def judge(home: Home, sent: Sent) -> None:
    ids = [(dict(record.headers() or ())["ps-id"] or b"").decode() for record, _ in home.records]
    assert len(ids) == len(set(ids)), "doubled"
    assert set(ids) == set(sent), "lost"
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (record, read_at), message_id in zip(home.records, ids, strict=True):
        key, due, number = sent[message_id]
        assert read_at * 1000 >= due - 2, f"{message_id} came {due - read_at * 1000:.0f} ms early"
        assert record.key() == key.encode()
        by_key[key].append((due, number))
    wrong = [key for key, found in by_key.items() if found != sorted(found)]
    assert not wrong, f"out of order: {wrong[0]}: {by_key[wrong[0]]}"


@pytest.mark.parametrize(
    ("count", "first", "spread", "kills"),
    [
        (240, 6, 6, 1),
        pytest.param(
            100_000, 45, 60, 2, marks=pytest.mark.skipif(not DEEP, reason="it takes minutes: `just deep`")
        ),
    ],
)
def test_partitions_are_added_while_messages_wait_and_routers_are_killed(
    ps: PubSub, monkeypatch: pytest.MonkeyPatch, count: int, first: float, spread: float, kills: int
) -> None:
    monkeypatch.setattr(drained, "LEARN", 0.0)
    topic = ps.create_topic("home", partitions=3)
    topology = ps._cluster.topology
    topology.apply(FORMER)
    with Routers(ps) as routers:
        for _ in range(3):
            routers.start()
        until(lambda: ps.delays.routers() == 3)
        home, sent = Home(ps, topic), Sent()
        publish(topic, count, sent, first, spread)
        routers.started[0].kill()
        topology.apply(ADDED)
        assert ps._cluster.backend.admin.topic(INGEST).partitions == 12
        few = min(count // 4, 1000)
        publish(topic, few, sent, 1, first + spread)
        ps._cluster.delayed.publisher.renew()
        publish(topic, few, sent, 1, first + spread)
        if kills > 1:
            routers.started[1].kill()
        places = {message_id.split(":")[1] for message_id in sent}
        assert len(places) > 6, f"all messages came in in the partitions {places}"
        until(lambda: home.count() >= len(sent), f"{len(sent)} messages at home", 240)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            home.count()
        judge(home, sent)
        until(lambda: [each.kind for each in topology.plan(ADDED)] == [ChangeKind.END])
        topology.apply(ADDED)
        assert ps._cluster.backend.admin.topic(DEAD).partitions == 12
        later = Sent()
        publish(topic, 20, later, 0.5, 1)
        until(lambda: home.count() >= len(sent | later), "messages after the growth")
