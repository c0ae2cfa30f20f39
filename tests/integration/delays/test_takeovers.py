"""A killed router's partitions go on within 10 seconds; a router goes on where the broker forgot how far it was."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.delays.layout import GROUP
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.local.broker import LocalKafka
from tests.integration.delays.home import Home, Published, publish
from tests.support import until
from tests.unit.delays.test_role import ids_of

#: Seconds within which another router goes on.
TAKEOVER = 10.0
#: A busy machine may need another try.
TRIES = 3


@pytest.fixture
def broker() -> Iterator[LocalKafka]:
    with LocalKafka() as broker:
        yield broker


@pytest.fixture
def ps(broker: LocalKafka) -> Iterator[PubSub]:
    with PubSub(broker.bootstrap) as pubsub:
        yield pubsub


def test_another_router_delivers_what_a_killed_one_had_to_within_ten_seconds(
    ps: PubSub, broker: LocalKafka
) -> None:
    """Messages are due all the time in both partitions, of which each router has one."""
    command = [sys.executable, "-m", "tests.integration.delays.killed_router", broker.bootstrap]
    took: list[float] = []
    with DelayRouter(ps, tiers=4, partitions=2) as router:
        while not took or (min(took) > TAKEOVER and len(took) < TRIES):
            topic = ps.create_topic(f"home-{len(took)}", partitions=1)
            home = Home(ps, topic)
            with subprocess.Popen([*command, "never", "0"]) as killed:
                try:
                    until(lambda: router.health().partitions == 1 and ps.delays.routers() == 2)
                    published = publish_steadily(topic)
                    until(lambda: home.count() > 20)  # noqa: B023 - it ends before the next round
                finally:
                    killed.kill()
                    killed_at = time.time()
            home.receive(published)
            took.append(takeover(home, killed_at))
    assert min(took) <= TAKEOVER, took


def publish_steadily(topic: Topic) -> Published:
    """Publishes what is due every 50 milliseconds from one second to 15 from now."""
    at = time.time()
    sent = {n: topic.publish(b"%d" % n, ordering_key=f"k{n % 8}", delay=n / 20) for n in range(20, 300)}
    return Published(at, {future.result(30): (n / 20, f"k{n % 8}") for n, future in sent.items()})


def takeover(home: Home, killed_at: float) -> float:
    """Returns after how many seconds the last partition had its first delivery after the kill."""
    first: dict[str, float] = {}
    for record, read_at in home.records:
        partition = (dict(record.headers() or ())["ps-id"] or b"").split(b":")[1].decode()
        if record.timestamp()[1] / 1000 > killed_at:
            first.setdefault(partition, read_at)
    assert len(first) == 2, "both partitions had something to deliver after the kill"
    return max(first.values()) - killed_at


def test_a_router_that_the_broker_forgot_begins_again_and_loses_nothing(ps: PubSub) -> None:
    topic = ps.create_topic("home", partitions=2)
    with DelayRouter(ps, tiers=3, partitions=2) as router:
        published = publish(topic, 120)
        until(lambda: router.metrics().get("home", 0) > 30)
    backend = ps._cluster.backend
    before = Counter(ids_of(backend, "home"))
    backend.admin.delete_group(GROUP)
    with DelayRouter(ps) as router, pytest.raises(FailedPrecondition, match="--begin-again"):
        router.wait_until_running(timeout=5)
    with DelayRouter(ps, begin_again=True):
        later = publish(topic, 60)
        wanted = {*published.by_id, *later.by_id}
        until(lambda: wanted <= set(ids_of(backend, "home")))
    found = Counter(ids_of(backend, "home"))
    assert set(found) == wanted
    again = {each for each, count in found.items() if count > 1}
    assert again <= set(published.by_id)
    # What was handled was deleted at the end, unless it lay behind what rested in memory.
    assert len(again) < len(before)
