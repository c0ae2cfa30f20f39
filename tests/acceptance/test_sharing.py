"""Several processes' worth of streams on a single subscription, coming and going while messages are published."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from kafka_pubsub import Message, PubSub, Subscription
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

KEYS = 40


class Member:
    """A `PubSub` of its own, like another process, with its own deliveries beside the shared ones."""

    def __init__(
        self, bootstrap: str, subscription: Subscription, shared: Deliveries, stack: ExitStack
    ) -> None:
        self.own = Deliveries()
        self._shared = shared
        ps = stack.enter_context(PubSub(bootstrap))
        self.stream = stack.enter_context(ps.subscription(subscription.name).pull(self._handle))

    def _handle(self, message: Message) -> None:
        with self._shared.handling(message), self.own.handling(message):
            threading.Event().wait(0.001)
            message.ack()


def numbers_of(log: Deliveries) -> dict[str | None, list[int]]:
    return {key: [int(body) for body in bodies] for key, bodies in log.first_of_each().items()}


def test_members_come_and_go_and_every_key_keeps_its_order(
    kafka: RunningKafka, room: Room, log: Deliveries
) -> None:
    topic = room.topic(partitions=8)
    subscription = room.subscription(topic)
    done = threading.Event()
    published = [0]

    def publish() -> None:
        while not done.wait(0.005):
            for key in range(KEYS):
                topic.publish(b"%d" % published[0], ordering_key=f"key-{key}")
            published[0] += 1

    publisher = threading.Thread(target=publish)
    with ExitStack() as everybody:
        first = Member(kafka.bootstrap, subscription, log, everybody)
        until(lambda: len(first.stream.stats.partitions) == 8)
        publisher.start()
        try:
            log.wait_for(1000)
            second = Member(kafka.bootstrap, subscription, log, everybody)
            until(lambda: len(second.stream.stats.partitions) == 4)
            with ExitStack() as leaving:
                third = Member(kafka.bootstrap, subscription, log, leaving)
                until(lambda: third.stream.stats.acked > 200)
            until(lambda: len(first.stream.stats.partitions) == len(second.stream.stats.partitions) == 4)
            before = len(log.all)
            log.wait_for(before + 1000)
        finally:
            done.set()
            publisher.join()
        topic.flush(PATIENCE)
        log.wait_for_distinct(KEYS * published[0])
        until(lambda: subscription.state().lag == 0)
    assert numbers_of(log) == {f"key-{key}": list(range(published[0])) for key in range(KEYS)}
    # Nobody had a key twice at once; between members a handler may outlive its ownership for its last message.
    assert [member.own.most_of_a_key for member in (first, second, third)] == [1, 1, 1]
    again = len(log.all) - KEYS * published[0]
    assert again < 1000, f"{again} redeliveries without a failure"


def test_a_member_that_takes_over_waits_for_nothing_and_repeats_only_what_was_not_acked(
    kafka: RunningKafka, room: Room, log: Deliveries
) -> None:
    """The owner holds a single key's message, has acked all others, and closes: that key goes on elsewhere."""
    topic, subscription = room.pair(ack_deadline=600)
    held: list[Message] = []

    def hold_one(message: Message) -> None:
        with log.handling(message):
            if message.ordering_key == "held":
                held.append(message)
            else:
                message.ack()

    with subscription.pull(hold_one) as stream:
        all_stored(
            topic.publish(b"%d" % number, ordering_key=key)
            for number in range(50)
            for key in ("held", "free")
        )
        until(lambda: stream.stats.acked == 50 and len(held) == 1)
    second = Deliveries()
    with PubSub(kafka.bootstrap) as other, other.subscription(subscription.name).pull(second.ack):
        second.wait_for(50)
        held[0].ack()  # too late: another process owns the partition now
        until(lambda: subscription.state().lag == 0)
    assert second.all == [("held", b"%d" % number) for number in range(50)]
    assert stream.stats.stale == 1
