"""`publish_many` with delayed items among others, against a real broker."""

from __future__ import annotations

import time
from collections import defaultdict

from kafka_pubsub import Message, PubSub
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.publish.many import PublishItem
from tests.support import until

COUNT, KEYS = 3_000, 5
#: Seconds: clocks are read to the millisecond.
CLOCK = 0.002


def test_each_item_arrives_once_under_the_id_of_its_future_when_it_is_due() -> None:
    """Every third item isn't delayed; the call is made twice, since only the second takes the quick way."""
    came: dict[str, tuple[float, Message]] = {}
    order: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def handle(message: Message) -> None:
        assert message.message_id not in came, "doubled"
        number = int(message.data)
        came[message.message_id] = time.time(), message
        order[message.ordering_key or ""].append((delay_of(number), number))
        message.ack()

    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps, DelayRouter(ps, tiers=3, partitions=2):
        topic = ps.create_topic("home", partitions=3)
        sub = ps.create_subscription("sub", topic, message_ordering=True)
        for start in (0, COUNT):
            at = time.time()
            ids = topic.publish_many(item(n) for n in range(start, start + COUNT)).result(60)
            with sub.pull(handle):
                until(lambda: len(came) >= start + COUNT)  # noqa: B023 - it ends before the next round
            for n, message_id in enumerate(ids, start):
                arrived, message = came[message_id]
                assert message.data == b"%d" % n
                assert message_id.startswith(f"{INGEST}:" if delay_of(n) else "home:")
                assert arrived >= at + delay_of(n) - CLOCK, "early"
            for key in [key for key in order if key]:
                assert order[key] == sorted(order[key]), f"the order of {key}: by due time, then by place"
            order.clear()


def delay_of(number: int) -> float:
    """Two delays: those of a call are all due in the order of the items."""
    return (0.0, 1.0, 4.0)[number % 3]


def item(number: int) -> bytes | PublishItem:
    body = b"%d" % number
    if number % 7 == 0 and not delay_of(number):
        return body
    found: PublishItem = {"data": body, "ordering_key": f"k{number % KEYS}", "attributes": {"a": "b"}}
    if delay_of(number):
        found["delay"] = delay_of(number)
    return found
