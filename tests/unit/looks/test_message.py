"""Looking at messages counts nothing: whatever is looked at, and closed cleanly, comes again with its first attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_pubsub import DeadLetterPolicy, Message, Subscription
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.notes import Doubt, Notes
from tests.unit.crashing import another
from tests.unit.dying import PATIENCE, QUICK, until

#: Far more than the attempts that the policy allows.
LOOKS = 16


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryBackend().cluster
    with another(cluster) as ps:
        ps.create_topic("dead", partitions=1)
        topic = ps.create_topic("orders", partitions=1)
        policy = DeadLetterPolicy(topic="dead", max_attempts=5)
        ps.create_subscription("billing", topic, message_ordering=True, retry=QUICK, dead_letter=policy)
        topic.publish(b"x", ordering_key="k").result(PATIENCE)
    return cluster


def receive(sub: Subscription) -> Message:
    (message,) = sub.receive(10, PATIENCE)
    return message


def pull_without_a_word(sub: Subscription) -> Message:
    seen: list[Message] = []
    came = threading.Event()

    def handle(message: Message) -> None:
        seen.append(message)
        came.set()

    with sub.pull(handle):
        assert came.wait(PATIENCE)
    (message,) = seen
    return message


def pull_a_batch_without_a_word(sub: Subscription) -> Message:
    seen: list[Message] = []
    came = threading.Event()

    def handle(messages: list[Message]) -> None:
        seen.extend(messages)
        came.set()

    with sub.pull_batch(handle):
        assert came.wait(PATIENCE)
    (message,) = seen
    return message


Look = Callable[[Subscription], Message]


every_look = pytest.mark.parametrize("look", [receive, pull_without_a_word, pull_a_batch_without_a_word])


def looks(cluster: MemoryCluster, look: Look) -> set[int]:
    """Looks again and again, each time in a process of its own; returns the attempts as which the message came."""
    attempts = set()
    for _ in range(LOOKS):
        with another(cluster) as ps:
            attempts.add(look(ps.subscription("billing")).delivery_attempt)
    with another(cluster) as ps:
        assert list(ps.subscription("billing").dead_letters()) == []
    return attempts


@every_look
def test_a_message_that_is_only_looked_at_keeps_its_first_attempt(cluster: MemoryCluster, look: Look) -> None:
    assert looks(cluster, look) == {1}
    with another(cluster) as ps:
        assert ps.subscription("billing").keys() == [], "nothing holds it up"


@every_look
def test_a_message_that_failed_once_keeps_its_second_attempt(cluster: MemoryCluster, look: Look) -> None:
    with another(cluster) as ps:
        sub = ps.subscription("billing")
        receive(sub).nack()
        until(sub.keys)
    assert looks(cluster, look) == {2}
    with another(cluster) as ps:
        (key,) = ps.subscription("billing").keys()
        assert (key.ordering_key, key.state, key.attempt, key.crashes) == ("k", "waiting", 2, 0)


@every_look
def test_a_suspect_of_a_crash_is_not_blamed_for_looks(cluster: MemoryCluster, look: Look) -> None:
    """Two owners died while the message was with its callback, so it is delivered alone from then on."""
    died = ack_map.encode(AckMap(7, (), notes=Notes(((0, 1),)), doubt=Doubt(1)), 0)
    with cluster.change():
        cluster.group("billing").store(TopicPartition("orders", 0), Committed(0, died))
    assert looks(cluster, look) == {1}
