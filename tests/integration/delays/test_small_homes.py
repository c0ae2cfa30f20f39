"""A home topic that takes little at once: what fits alone comes home, in whichever batches it goes."""

from __future__ import annotations

import random

from kafka_pubsub import PubSub
from kafka_pubsub.core.delays.layout import DEAD
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.services.delays import DelayRouter
from tests.support import until
from tests.unit.services.test_delay_router import ids_of

LIMIT, COUNT, LARGE = 20_000, 300, 3


def test_only_messages_that_are_too_large_by_themselves_become_dead_letters() -> None:
    """All are due at the same time, so they go home in few transactions."""
    noise = random.Random(1)
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        topic = ps.create_topic("home", partitions=1)
        large = [topic.publish(noise.randbytes(LIMIT), delay=0.5).result(30) for _ in range(LARGE)]
        ids = [topic.publish(noise.randbytes(2_000), ordering_key="k", delay=0.5) for _ in range(COUNT)]
        wanted = [future.result(30) for future in ids]
        ps._cluster.backend.admin.update_topic("home", {"max.message.bytes": str(LIMIT)})
        with DelayRouter(ps) as router:
            until(lambda: router.metrics().get("home", 0) + router.metrics().get("dead", 0) == COUNT + LARGE)
        assert ids_of(ps._cluster.backend, "home") == wanted
        assert sorted(ids_of(ps._cluster.backend, DEAD)) == sorted(large)
