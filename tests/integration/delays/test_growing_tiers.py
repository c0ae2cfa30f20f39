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
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.local.broker import LocalKafka
from tests.integration.delays.home import Home
from tests.support import until

KEYS = 40
FORMER, ADDED = DelayDeclaration(tiers=5, partitions=2), DelayDeclaration(tiers=5, partitions=12)

#: By the id of a message: its key, when it is due in milliseconds, and its number.
Sent = dict[str, tuple[str, int, int]]


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as pubsub:
        yield pubsub


def publish(topic: Topic, count: int, sent: Sent, first: float, spread: float) -> None:
    """Publishes messages that are due `first` seconds from now at least, in no order."""
    now = datetime.now(UTC).replace(microsecond=0)
    futures = []
    for n in range(len(sent), len(sent) + count):
        at = now + timedelta(seconds=first, milliseconds=n * 7919 % round(spread * 1000))
        key = f"k{n % KEYS}"
        due = round(at.timestamp() * 1000)
        futures.append((topic.publish(b"%d" % n, ordering_key=key, deliver_at=at), (key, due, n)))
    topic.flush(60)
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


def test_partitions_are_added_while_messages_wait_and_routers_are_killed(ps: PubSub) -> None:
    topic = ps.create_topic("home", partitions=3)
    ps._cluster.topology.apply(FORMER)
    command = [sys.executable, "-m", "kafka_pubsub", "--bootstrap", ps._cluster.backend.address]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([*command, "service", "router"]))
        return started[-1]

    try:
        first, second, _ = start(), start(), start()
        until(lambda: ps.delays.routers() == 3)
        home, sent = Home(ps, topic), Sent()
        publish(topic, 1500, sent, 8, 20)
        first.kill()
        start()
        ps._cluster.topology.apply(ADDED)
        assert ps._cluster.backend.admin.topic(INGEST).partitions == 12
        publish(topic, 500, sent, 2, 20)
        ps._cluster.delayed.publisher.renew()
        publish(topic, 500, sent, 2, 20)
        second.kill()
        publish(topic, 500, sent, 6, 20)
        places = {message_id.split(":")[1] for message_id in sent}
        assert len(places) > 6, f"all messages came in in the partitions {places}"
        until(lambda: home.count() >= len(sent), f"{len(sent)} messages at home", 240)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            home.count()
        judge(home, sent)
    finally:
        for process in started:
            process.kill()
            process.wait()
