"""A home topic gets more partitions on a real broker while delayed messages for it wait and come due."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest

from kafka_pubsub import Message, PubSub
from kafka_pubsub.administration import manage_topics
from kafka_pubsub.delays import homes
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.publish import writer_pool
from kafka_pubsub.repartition.repartition import Repartitioner
from tests.support import until

COUNT, KEYS = 600, 20
#: Seconds until the last message is due.
LONGEST = 12.0
#: Seconds between two looks of publishers, what a router's look counts for, and the fence that exceeds both.
RENEW, KNOWN, FENCE = 0.5, 0.5, 3.0


def test_no_message_is_lost_and_each_key_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_pool, "RENEW_S", RENEW)
    monkeypatch.setattr(writer_pool, "_RENEW_SOON_S", RENEW / 5)
    monkeypatch.setattr(homes, "KNOWN_S", KNOWN)
    came: dict[str, list[int]] = defaultdict(list)
    ids: set[str] = set()

    def handle(message: Message) -> None:
        assert message.message_id not in ids, "doubled"
        ids.add(message.message_id)
        came[message.ordering_key or ""].append(int(message.data))
        message.ack()

    with (
        LocalKafka() as broker,
        PubSub(broker.bootstrap) as ps,
        DelayRouter(ps, tiers=5, partitions=2) as router,
    ):
        topic = ps.create_topic("home", partitions=2)
        sub = ps.create_subscription("sub", topic, message_ordering=True)
        backend = KafkaBackend(broker.bootstrap)
        change = Repartitioner(backend, manage_topics(backend, may_create=True), may_create=True, fence=FENCE)
        held = threading.Event()
        with sub.pull(handle):
            sent = [
                topic.publish(b"%d" % n, ordering_key=f"k{n % KEYS}", delay=0.5 + n / COUNT * LONGEST)
                for n in range(COUNT)
            ]
            topic.flush(60)
            changing = threading.Thread(target=change.run, args=("home", 7), kwargs={"timeout": 60})
            changing.start()

            def is_through() -> bool:
                if "is being repartitioned" in router.health().error:
                    held.set()
                return len(ids) >= COUNT

            until(is_through, "all messages came")
            changing.join(60)
        assert backend.admin.topic("home").partitions == 7
        backend.close()
    assert held.is_set(), "messages were due while the topic was repartitioned"
    assert ids == {each.result() for each in sent}
    assert all(numbers == sorted(numbers) for numbers in came.values())
