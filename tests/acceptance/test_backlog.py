"""`state()` tells on a real Kafka which messages a subscription hasn't finished, whatever Kafka's own lag says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, RetryPolicy, Subscription
from tests.acceptance.support import Deliveries, Room, all_stored, until

QUICK = RetryPolicy(min_backoff=0.05, max_backoff=0.1)
IN_TEN_MINUTES = RetryPolicy(min_backoff=600, max_backoff=600)


@pytest.fixture
def elsewhere(kafka: Any) -> Iterator[PubSub]:
    """A process that receives nothing."""
    with PubSub(kafka.bootstrap) as ps:
        yield ps


def stored(subscription: Subscription) -> object:
    """All that the group has stored."""
    subscriber = subscription._subscriber()
    record, admin = subscriber._look_up(), subscriber._backend.admin
    assert record.retry_topic is not None
    return [admin.group_offsets(record.name, name) for name in (record.topic, record.retry_topic.name)]


def test_a_parked_key_is_all_that_is_left_beside_a_thousand_acks(
    room: Room, log: Deliveries, elsewhere: PubSub
) -> None:
    topic, dead = room.topic(partitions=1), room.topic()
    policy = DeadLetterPolicy(topic=dead.name, max_attempts=5, on_exhausted="park")
    subscription = room.subscription(topic, retry=QUICK, dead_letter=policy)
    watched = elsewhere.subscription(subscription.name)

    def handle(message: Message) -> None:
        if message.ordering_key == "bad":
            message.nack()
            return
        with log.handling(message):
            message.ack()

    with subscription.pull(handle):
        all_stored([topic.publish(b"bad", ordering_key="bad")])
        until(lambda: (watched.state().backlog, watched.state().parked) == (1, 1))
        all_stored(topic.publish(b"%d" % number, ordering_key=f"k{number}") for number in range(1000))
        log.wait_for_distinct(1000)
        until(lambda: watched.state().backlog == 1)
        all_stored([topic.publish(b"behind it", ordering_key="bad")])
        all_stored(topic.publish(b"%d" % number, ordering_key=f"k{number}") for number in range(1000, 2000))
        log.wait_for_distinct(2000)
        until(lambda: watched.state().backlog == 2)
        state = watched.state()
        assert (state.parked, state.waiting_retry, state.blocked_keys, state.members) == (1, 0, 1, 1)
        assert state.lag == 1001, "Kafka's lag counts all behind the message that waits"
    before = stored(watched)
    state = watched.state()
    assert (state.backlog, state.parked, state.members) == (2, 1, 0)
    assert state.oldest is not None
    assert stored(watched) == before


def test_nacked_messages_are_backlog_though_the_lag_is_none(
    room: Room, log: Deliveries, elsewhere: PubSub
) -> None:
    topic, dead = room.topic(), room.topic()
    subscription = room.subscription(
        topic, retry=IN_TEN_MINUTES, dead_letter=DeadLetterPolicy(topic=dead.name)
    )
    watched = elsewhere.subscription(subscription.name)
    with subscription.pull(Message.nack):
        all_stored(topic.publish(b"%d" % number, ordering_key=f"k{number}") for number in range(100))
        until(lambda: watched.state().waiting_retry == 100)
    state = watched.state()
    assert (state.backlog, state.lag, state.waiting_retry, state.parked) == (100, 0, 100, 0)
    assert (state.blocked_keys, state.dead_letters, state.unread_retry) == (100, 0, 0)
    assert state.oldest is not None
