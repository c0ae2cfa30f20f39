"""A single partition of a topic has no leader: its messages wait, and a stream delivers those of the others."""

from __future__ import annotations

import pytest

from kafka_pubsub import Message, PubSub, Subscription, Topic
from kafka_pubsub.errors import BrokerUnavailable, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.subscribe.takeover import paired_partitions
from tests.support import until


class NoLeader(FaultPlan):
    """Partitions have no leader."""

    def __init__(self) -> None:
        self.places: set[TopicPartition] = set()

    def away(self, partition: TopicPartition) -> PubSubError | None:
        return BrokerUnavailable("no leader") if partition in self.places else None


def fail_once(topic: Topic, sub: Subscription) -> None:
    """Has a message of each partition pass the retry topic, so that positions of both logs are committed."""
    left = {b"%d" % next(n for n in range(99) if partition_of(b"%d" % n, 3) == place) for place in range(3)}
    for key in left:
        topic.publish(b"first", ordering_key=key.decode())
    topic.flush(10)
    failed: set[str | None] = set()

    def handle(message: Message) -> None:
        if message.ordering_key in failed:
            message.ack()
        else:
            failed.add(message.ordering_key)
            message.nack()

    with sub.pull(handle):
        until(lambda: len(failed) == 3 and sub.state().backlog == 0)


@pytest.mark.parametrize("away", ["orders", "orders.sub.billing.retry"])
@pytest.mark.parametrize("committed", [False, True], ids=["nothing committed", "positions of both logs"])
def test_a_partition_without_a_leader_stops_no_other_one(
    away: str, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paired_partitions, "_AWAY", 0.1)
    faults = NoLeader()
    with PubSub.in_memory(MemoryBackend(faults=faults)) as ps:
        topic = ps.create_topic("orders", partitions=3)
        sub = ps.create_subscription("billing", "orders", message_ordering=True)
        if committed:
            fail_once(topic, sub)
        for number in range(30):
            topic.publish(b"%d" % number, ordering_key=str(number))
        topic.flush(10)
        faults.places.add(TopicPartition(away, 1))
        wanted = {b"%d" % n for n in range(30) if partition_of(b"%d" % n, 3) != 1}
        got: set[bytes] = set()

        def handle(message: Message) -> None:
            got.add(message.data)
            message.ack()

        with sub.pull(handle):
            until(lambda: got == wanted)
            faults.places.clear()
            until(lambda: len(got) == 30)
