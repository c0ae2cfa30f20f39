"""The catalog: of two writers, one is refused."""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub.config import (
    RetryPolicy,
    SubscriptionOptions,
    SubscriptionRecord,
    TopicOptions,
    TopicRecord,
)
from kafka_pubsub.errors import FailedPrecondition
from tests.contract.world import PATIENCE, World


def _topic(name: str, **labels: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id="id-1", options=TopicOptions(labels=labels), created=12.5)


def _subscription(name: str, topic: str, position: int = 0) -> SubscriptionRecord:
    return SubscriptionRecord(
        name=name,
        topic=topic,
        topic_id="id-1",
        partitions=2,
        options=SubscriptionOptions(ack_deadline=30, retry=RetryPolicy(min_backoff=1, max_backoff=2)),
        positions={0: position, 1: 7},
        created=99.0,
    )


def test_what_was_put_is_found_under_its_name(world: World) -> None:
    catalog = world.backend.catalog
    topic, subscription = _topic(world.name("t"), team="a"), _subscription(world.name("s"), "t")
    catalog.put_topic(topic, None)
    catalog.put_subscription(subscription, None)
    assert catalog.topics()[topic.name] == topic
    assert catalog.subscriptions()[subscription.name] == subscription


def test_a_topic_and_a_subscription_may_share_a_name(world: World) -> None:
    catalog, name = world.backend.catalog, world.name("both")
    catalog.put_topic(_topic(name), None)
    catalog.put_subscription(_subscription(name, name), None)
    assert catalog.topics()[name] == _topic(name)
    assert catalog.subscriptions()[name] == _subscription(name, name)


def test_of_two_who_saw_nothing_the_second_is_refused(world: World) -> None:
    catalog, name = world.backend.catalog, world.name("t")
    catalog.put_topic(_topic(name, by="first"), None)
    with pytest.raises(FailedPrecondition):
        catalog.put_topic(_topic(name, by="second"), None)
    assert catalog.topics()[name].options.labels == {"by": "first"}


def test_of_two_who_saw_the_same_the_second_is_refused(world: World) -> None:
    catalog, name = world.backend.catalog, world.name("s")
    seen = _subscription(name, "t", 0)
    catalog.put_subscription(seen, None)
    catalog.put_subscription(_subscription(name, "t", 1), seen)
    with pytest.raises(FailedPrecondition):
        catalog.put_subscription(_subscription(name, "t", 2), seen)
    assert catalog.subscriptions()[name].positions[0] == 1


def test_who_saw_the_latest_may_change_it(world: World) -> None:
    catalog, name = world.backend.catalog, world.name("t")
    catalog.put_topic(_topic(name, v="1"), None)
    catalog.put_topic(_topic(name, v="2"), catalog.topics()[name])
    catalog.put_topic(_topic(name, v="3"), catalog.topics()[name])
    assert catalog.topics()[name].options.labels == {"v": "3"}


def test_a_removed_record_is_gone_and_may_come_again(world: World) -> None:
    catalog, name = world.backend.catalog, world.name("t")
    catalog.put_topic(_topic(name), None)
    catalog.remove_topic(_topic(name))
    assert name not in catalog.topics()
    catalog.put_topic(_topic(name, again="yes"), None)
    assert catalog.topics()[name].options.labels == {"again": "yes"}


def test_only_the_latest_can_be_removed(world: World) -> None:
    catalog, name = world.backend.catalog, world.name("s")
    seen = _subscription(name, "t", 0)
    catalog.put_subscription(seen, None)
    catalog.put_subscription(_subscription(name, "t", 1), seen)
    with pytest.raises(FailedPrecondition):
        catalog.remove_subscription(seen)
    assert name in catalog.subscriptions()
    catalog.remove_subscription(_subscription(name, "t", 1))
    assert name not in catalog.subscriptions()


def test_what_is_gone_cannot_be_changed_or_removed(world: World) -> None:
    catalog, name = world.backend.catalog, world.name("t")
    with pytest.raises(FailedPrecondition):
        catalog.remove_topic(_topic(name))
    with pytest.raises(FailedPrecondition):
        catalog.put_topic(_topic(name, v="2"), _topic(name))
    assert name not in catalog.topics()


def test_another_process_sees_the_change_and_is_refused_with_an_older_view(world: World) -> None:
    name = world.name("t")
    with world.lasting(world.beside) as other:
        world.backend.catalog.put_topic(_topic(name, by="here"), None)
        assert other.catalog.topics()[name] == _topic(name, by="here")
        other.catalog.put_topic(_topic(name, by="there"), _topic(name, by="here"))
        with pytest.raises(FailedPrecondition):
            world.backend.catalog.put_topic(_topic(name, by="here again"), _topic(name, by="here"))
        assert world.backend.catalog.topics()[name].options.labels == {"by": "there"}


def test_of_many_at_once_exactly_one_wins(world: World) -> None:
    catalog, name = world.backend.catalog, world.name("t")
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def put(number: int) -> None:
        start.wait(PATIENCE)
        try:
            catalog.put_topic(_topic(name, by=str(number)), None)
            outcomes.append(str(number))
        except FailedPrecondition:
            outcomes.append("refused")

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    winners = [outcome for outcome in outcomes if outcome != "refused"]
    assert len(outcomes) == 4
    assert catalog.topics()[name].options.labels == {"by": winners[0]}
    assert len(winners) == 1
