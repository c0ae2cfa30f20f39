"""With the rights of their roles, publishers, sequencers and subscribers work, and only sequencers write home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclPermissionType,
    ResourcePatternType,
)

from kafka_pubsub import PubSub
from kafka_pubsub.access.rights import Access, Rule, rules_of
from kafka_pubsub.multicast.layout import RECEIPTS
from kafka_pubsub.multicast.service import Sequencer
from tests.integration.test_access_rules import KINDS, LOGIN, GuardedKafka, broker, operation_of
from tests.support import until

__all__ = ["broker"]

PATIENCE = 60.0
TOPICS = ("orders", "stock")
CAUSAL = Access(TOPICS, extras=["causal"])


def grant(guarded: GuardedKafka, user: str, rules: Sequence[Rule]) -> None:
    acls = [
        AclBinding(
            KINDS[rule.type],
            rule.name,
            ResourcePatternType.PREFIXED if rule.prefix else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation_of(operation),
            AclPermissionType.ALLOW,
        )
        for rule in rules
        for operation in rule.operations
    ]
    guarded.add(acls)


def login(user: str) -> Mapping[str, str]:
    return {**LOGIN, "sasl.username": user}


@pytest.fixture
def guarded(broker: GuardedKafka) -> GuardedKafka:
    with PubSub(broker.bootstrap) as owner:
        for name in TOPICS:
            owner.create_topic(name, causal=True)
        owner.create_subscription("billing", "orders", message_ordering=True)
    for user in ("publisher", "sequencer"):
        grant(broker, user, rules_of(user, CAUSAL))
    grant(broker, "subscriber", rules_of("subscriber", Access(["orders"], "billing")))
    return broker


def test_the_rules_are_enough_and_only_a_sequencer_writes_home(guarded: GuardedKafka) -> None:
    with (
        PubSub(guarded.guarded, config=login("publisher")) as publisher,
        PubSub(guarded.guarded, config=login("sequencer")) as sequencers,
        PubSub(guarded.guarded, config=login("subscriber")) as subscriber,
        Sequencer(sequencers) as sequencer,
    ):
        sequencer.wait_until_running(PATIENCE)
        sent = publisher.publish_multi(TOPICS, b"x", ordering_key="k").result(PATIENCE)
        (message,) = subscriber.subscription("billing").receive(1, PATIENCE)
        assert (message.data, message.message_id) == (b"x", sent.message_id)
        message.nack()
        (again,) = subscriber.subscription("billing").receive(1, PATIENCE)
        assert again.delivery_attempt == 2
        again.ack()
        sequencer.stop(PATIENCE)
        assert sequencer.health().error == ""
    for user in ("publisher", "subscriber"):
        assert refusal(guarded, user, "orders") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert refusal(guarded, "subscriber", "orders.inbox") == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_right_to_read_receipts_that_is_granted_late_is_enough(
    broker: GuardedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with PubSub(broker.bootstrap) as owner, Sequencer(owner) as sequencer:
        for name in TOPICS:
            owner.create_topic(name, causal=True)
        sequencer.wait_until_running(PATIENCE)
        rules = rules_of("publisher", CAUSAL)
        early = [each if each.name != RECEIPTS else each._replace(operations=("Describe",)) for each in rules]
        grant(broker, "publisher", early)
        with PubSub(broker.guarded, config=login("publisher")) as publisher:
            sent = publisher.publish_multi(TOPICS, b"x")
            until(lambda: f"can't be read: read topic '{RECEIPTS}'" in caplog.text)
            assert "GROUP_AUTHORIZATION_FAILED" not in caplog.text
            assert not sent.done()
            grant(broker, "publisher", rules)
            until(sent.done)
            assert sent.result().message_id


def refusal(guarded: GuardedKafka, user: str, topic: str) -> int | None:
    """The error with which the broker refuses a record of the user; None: it takes it."""
    found: list[int | None] = []
    producer = Producer({"bootstrap.servers": guarded.guarded, **login(user)})
    producer.produce(
        topic, b"x", on_delivery=lambda error, _: found.append(None if error is None else error.code())
    )
    producer.flush(30)
    return found[0]
