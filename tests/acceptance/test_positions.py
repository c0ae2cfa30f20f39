"""Where a subscription goes on: after a restart, after the broker has forgotten its offsets, after a crash."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_pubsub import Message, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

CONSUMER = """
    import os, sys, time
    from kafka_pubsub import PubSub

    diary = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND)

    def handle(message):
        os.write(diary, b"%s %s\\n" % (message.key, message.data))
        time.sleep(0.002)
        message.ack()

    with PubSub(sys.argv[1]) as ps, ps.subscription(sys.argv[2]).pull(handle) as stream:
        stream.result()
"""


def test_acks_above_a_gap_survive_a_restart(kafka: RunningKafka, room: Room, log: Deliveries) -> None:
    """One message isn't acked, all behind it are: the next process gets only this message again."""
    topic = room.topic(partitions=1)
    subscription = room.subscription(topic, ack_deadline=600)
    all_stored(topic.publish(b"%d" % number, ordering_key=f"key-{number % 50}") for number in range(1000))

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data != b"7":
                message.ack()

    with subscription.pull(handle) as stream:
        until(lambda: stream.stats.acked == 1000 - 20)  # 7, and the messages of its key behind it
    second = Deliveries()
    with PubSub(kafka.bootstrap) as other, other.subscription(subscription.name).pull(second.ack):
        second.wait_for(20)
        topic.publish(b"last").result(PATIENCE)
        second.wait_for(21)
    assert sorted(second.all[:-1]) == sorted(("key-7", b"%d" % number) for number in range(7, 1000, 50))
    assert second.by_key["key-7"] == [b"%d" % number for number in range(7, 1000, 50)]
    assert second.all[-1] == (None, b"last")


def forget_offsets(bootstrap: str, group: str, topic: str) -> None:
    """A broker forgets the offsets of a group that was idle for their retention (7 days)."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups([group])[group].result(PATIENCE)
    found = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    )[group].result(PATIENCE)
    assert [each.offset for each in found.topic_partitions] == [-1001]


def test_offsets_that_the_broker_forgot_come_from_the_catalog(
    kafka: RunningKafka, room: Room, log: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    topic, subscription = room.pair()
    with subscription.pull(log.ack):
        all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(10))
        log.wait_for(10)
    forget_offsets(kafka.bootstrap, subscription.name, topic.name)
    all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(10, 20))
    with caplog.at_level(logging.WARNING, "kafka_pubsub.subscriber"), subscription.pull(log.ack):
        log.wait_for(20)
    assert log.bodies == [b"%d" % number for number in range(20)]
    assert "going on from the catalog's copy" in caplog.text


def test_a_subscription_that_never_received_is_not_lost_with_its_offsets(
    kafka: RunningKafka, room: Room, log: Deliveries
) -> None:
    topic = room.topic(partitions=1)
    topic.publish(b"before", ordering_key="key").result(PATIENCE)
    subscription = room.subscription(topic)
    forget_offsets(kafka.bootstrap, subscription.name, topic.name)
    topic.publish(b"after", ordering_key="key").result(PATIENCE)
    with subscription.pull(log.ack):
        log.wait_for(1)
    assert log.bodies == [b"after"]


class Consumers:
    """Processes that consume a subscription and write their deliveries into one diary."""

    def __init__(self, bootstrap: str, subscription: str, diary: Path) -> None:
        self._arguments = [bootstrap, subscription, str(diary)]
        self._diary = diary
        diary.touch()
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        program = textwrap.dedent(CONSUMER)
        process = subprocess.Popen(
            [sys.executable, "-c", program, *self._arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.running.append(process)
        return process

    def lines(self) -> list[tuple[str, int]]:
        """Key and number of each delivery; a line that a kill has cut off doesn't count."""
        whole = self._diary.read_text().rpartition("\n")[0]
        pairs = [line.split() for line in whole.splitlines()]
        return [(key, int(number)) for key, number in pairs]


@pytest.fixture
def consumers(kafka: RunningKafka, room: Room, tmp_path: Path) -> Iterator[Consumers]:
    topic = room.topic()
    subscription = room.subscription(topic)
    made = Consumers(kafka.bootstrap, subscription.name, tmp_path / "diary")
    yield made
    for process in made.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGINT)),
    ],
)
def test_a_consumer_that_is_ended_in_the_middle_loses_nothing(
    room: Room, consumers: Consumers, how: signal.Signals
) -> None:
    topic = room.ps.topic(f"{room.name}-t1")
    first = consumers.start()
    until(lambda: room.ps.subscription(f"{room.name}-s2").state().members == 1)
    for number in range(10_000):
        topic.publish(b"%d" % number, ordering_key=f"key-{number % 100}")
    until(lambda: len(consumers.lines()) > 100)
    os.kill(first.pid, how)
    first.wait(PATIENCE)
    assert len(consumers.lines()) < 10_000  # it was in the middle
    topic.flush(PATIENCE)
    consumers.start()
    until(lambda: len(set(consumers.lines())) == 10_000)
    for key in range(100):
        numbers = [number for each, number in consumers.lines() if each == f"key-{key}"]
        assert list(dict.fromkeys(numbers)) == list(range(key, 10_000, 100))
        # Redeliveries form a stretch that ends where the first process was.
        restarts = [at for at in range(1, len(numbers)) if numbers[at] <= numbers[at - 1]]
        assert len(restarts) <= (how is not signal.SIGINT), (
            numbers
        )  # Ctrl-C leaves the `with` block: all is committed
