"""Home topics that take little at once, or are gone: what fits alone comes home, the rest when it is replayed."""

from __future__ import annotations

import random

from kafka_pubsub import Message, PubSub
from kafka_pubsub.config import Batching
from kafka_pubsub.delays.layout import DEAD, INGEST
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.local.broker import LocalKafka
from tests.support import until
from tests.unit.delays.test_role import ids_of

LIMIT, COUNT, LARGE = 20_000, 300, 3


def test_only_messages_that_are_too_large_by_themselves_become_dead_letters() -> None:
    """All are due at the same time, so they go home in few transactions."""
    noise = random.Random(1)
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        ps._cluster.delay_topics.make(partitions=2)
        topic = ps.create_topic("home", partitions=1)
        large = [topic.publish(noise.randbytes(LIMIT), delay=0.5).result(30) for _ in range(LARGE)]
        ids = [topic.publish(noise.randbytes(2_000), ordering_key="k", delay=0.5) for _ in range(COUNT)]
        wanted = [future.result(30) for future in ids]
        ps._cluster.backend.admin.update_topic("home", {"max.message.bytes": str(LIMIT)})
        with DelayRouter(ps) as router:
            until(lambda: router.metrics().get("home", 0) + router.metrics().get("dead", 0) == COUNT + LARGE)
        assert ids_of(ps._cluster.backend, "home") == wanted
        assert sorted(ids_of(ps._cluster.backend, DEAD)) == sorted(large)
        result = ps.delays.replay()
        assert (result.count, sum(result.skipped.values())) == (0, LARGE), (
            "the topic still takes none of them"
        )
        ps._cluster.backend.admin.update_topic("home", {"max.message.bytes": str(10 * LIMIT)})
        assert ps.delays.replay().count == LARGE
        found = ids_of(ps._cluster.backend, "home")
        # Without a key they came in in any partition.
        assert (found[:COUNT], sorted(found[COUNT:])) == (wanted, sorted(large))


def test_messages_of_a_topic_that_is_gone_come_home_once_it_is_there_again() -> None:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        topic = ps.create_topic("home", partitions=3)
        idle = DelayRouter(ps, tiers=3, partitions=2)
        futures = [
            topic.publish(b"%d" % n, ordering_key=f"k{n % 5}", attributes={"n": str(n)}, delay=n % 3 + 0.5)
            for n in range(60)
        ]
        ids = {future.result(30): n for n, future in enumerate(futures)}
        ps.delete_topic("home")
        with idle as router:
            writer = ps._cluster.backend.writer(Batching(), 10**6)
            writer.append(INGEST, b"foreign", b"k", [("a", b"b")], lambda *_: None)
            writer.flush(10)
            until(lambda: router.metrics().get("dead") == len(ids) + 1)
        assert {each.message_id for each in ps.delays.dead_letters(topic="home")} == set(ids)
        ps.create_topic("home", partitions=3)
        sub = ps.create_subscription("sub", "home", message_ordering=True)
        results = [ps.delays.replay(), ps.delays.replay()]
        assert [each.count for each in results] == [len(ids), 0]
        assert all(sum(each.skipped.values()) == 1 for each in results), "the record of another program"
        came: list[Message] = []

        def handle(message: Message) -> None:
            came.append(message)
            message.ack()

        with sub.pull(handle):
            until(lambda: len(came) >= len(ids))
        assert len(came) == len(ids)
        for message in came:
            n = ids[message.message_id]
            assert (message.data, message.ordering_key) == (b"%d" % n, f"k{n % 5}")
            assert message.attributes == {"n": str(n)}
        for key in {message.ordering_key for message in came}:
            line = [int(message.data) for message in came if message.ordering_key == key]
            assert line == sorted(line, key=lambda n: (n % 3, n)), "by due time, then by publishing"
        assert ps.delays.purge().count == 1
        assert list(ps.delays.dead_letters()) == []
