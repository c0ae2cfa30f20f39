"""A router is killed in any phase of a transaction: another takes over, and each message is home once, in order."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.config import Batching
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.integration.delays.home import Home, publish
from tests.integration.delays.killed_router import PHASES
from tests.support import until

#: The router's group and topics are the cluster's, so these tests need one of their own.


@pytest.fixture(scope="module")
def kafka() -> Iterator[RunningKafka]:
    with LocalKafka() as broker:
        yield RunningKafka(broker.bootstrap)


@pytest.fixture
def ps(kafka: RunningKafka) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as pubsub:
        yield pubsub


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("transaction", [1, 2, 5])
def test_a_router_killed_in_a_transaction_loses_and_doubles_nothing(
    ps: PubSub, kafka: RunningKafka, phase: str, transaction: int
) -> None:
    topic = ps.create_topic(f"home-{phase}-{transaction}", partitions=3)
    command = [sys.executable, "-m", "tests.integration.delays.killed_router"]
    with subprocess.Popen([*command, kafka.bootstrap, phase, str(transaction)]) as killed:
        until(lambda: ps.delays.routers() == 1)
        published = publish(topic, 60)
        try:
            assert killed.wait(60) == -signal.SIGKILL
        finally:
            killed.kill()
    with DelayRouter(ps):
        Home(ps, topic).receive(published)


def test_two_routers_share_the_partitions_and_one_that_is_killed_is_replaced(
    ps: PubSub, kafka: RunningKafka
) -> None:
    topic = ps.create_topic("home-shared", partitions=3)
    command = [sys.executable, "-m", "tests.integration.delays.killed_router", kafka.bootstrap, "never", "0"]
    with subprocess.Popen(command) as killed, DelayRouter(ps, tiers=4) as router:
        until(lambda: router.health().partitions == 1 and ps.delays.routers() == 2)
        published = publish(topic, 200)
        killed.kill()
        killed_at = time.monotonic()
        until(lambda: router.health().partitions == 2)
        assert time.monotonic() - killed_at < 30  # 10 s on an idle machine
        Home(ps, topic).receive(published)


def test_records_of_other_programs_in_ingest_hold_up_nothing(ps: PubSub) -> None:
    topic = ps.create_topic("home-foreign", partitions=1)
    with DelayRouter(ps):
        writer = ps._cluster.backend.writer(Batching(), 10**6)
        writer.append("_kafka_pubsub.delay.in", b"foreign", b"k", [("a", b"b")], lambda *_: None)
        writer.flush(10)
        published = publish(topic, 20)
        Home(ps, topic).receive(published)
