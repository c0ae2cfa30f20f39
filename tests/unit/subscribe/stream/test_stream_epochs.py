"""The group's epoch rises while our partitions stay ours: redelivery, dead letters and commits go on."""

from __future__ import annotations

from collections import Counter

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, RetryPolicy
from kafka_pubsub.log.memory import MemoryBackend, MemoryCluster
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE


def test_nacked_messages_come_again_however_often_the_epoch_rises() -> None:
    cluster = MemoryCluster()
    acked: Counter[bytes] = Counter()

    def handle(message: Message) -> None:
        if message.delivery_attempt == 1:
            cluster.raise_epoch("billing")
            message.nack()
        else:
            acked[message.data] += 1
            message.ack()

    with PubSub.in_memory(MemoryBackend(cluster=cluster)) as ps:
        ps.create_topic("orders", partitions=2)
        retry = RetryPolicy(min_backoff=0.01, max_backoff=0.05)
        sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=retry)
        with sub.pull(handle) as stream:
            for number in range(20):
                ps.topic("orders").publish(b"%d" % number, ordering_key=f"k{number % 5}").result(PATIENCE)
            until(lambda: len(acked) == 20, "all messages acked")
            until(lambda: sub.state().lag == 0, "all acks committed")
            assert not stream.done()


def test_a_used_up_message_is_dead_lettered_after_the_epoch_rose() -> None:
    cluster = MemoryCluster()
    with PubSub.in_memory(MemoryBackend(cluster=cluster)) as ps:
        ps.create_topic("orders", partitions=1)
        ps.create_topic("dead", partitions=1)
        sub = ps.create_subscription(
            "billing",
            "orders",
            message_ordering=True,
            retry=RetryPolicy(min_backoff=0.01, max_backoff=0.05),
            dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
        )
        with sub.pull(lambda message: message.nack()):
            cluster.raise_epoch("billing")
            ps.topic("orders").publish(b"1", ordering_key="k").result(PATIENCE)
            until(lambda: bool(list(sub.dead_letters())), "a dead letter")
