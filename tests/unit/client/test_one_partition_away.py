"""One partition of a topic has no leader: its messages wait, and a stream delivers those of the others."""

from __future__ import annotations

import pytest

from kafka_pubsub import Message, PubSub
from kafka_pubsub.core.partitioner import partition_of
from kafka_pubsub.errors import BrokerUnavailable, PubSubError
from kafka_pubsub.memory import FaultPlan, MemoryBackend
from kafka_pubsub.model import TopicPartition
from tests.support import until


class NoLeader(FaultPlan):
    """Partitions have no leader."""

    def __init__(self) -> None:
        self.places: set[TopicPartition] = set()

    def away(self, partition: TopicPartition) -> PubSubError | None:
        return BrokerUnavailable("no leader") if partition in self.places else None


@pytest.mark.parametrize("away", ["orders", "orders.sub.billing.retry"])
def test_a_partition_without_a_leader_stops_no_other_one(away: str) -> None:
    faults = NoLeader()
    with PubSub.in_memory(MemoryBackend(faults=faults)) as ps:
        topic = ps.create_topic("orders", partitions=3)
        sub = ps.create_subscription("billing", "orders", message_ordering=True)
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
