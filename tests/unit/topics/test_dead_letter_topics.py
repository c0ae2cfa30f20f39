"""Dead-letter policies: what may be named, and what is done to the topic that is."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pubsub import (
    DeadLetterPolicy,
    FailedPrecondition,
    InvalidArgument,
    Message,
    NotFound,
    PubSub,
    RetryPolicy,
    SubscriptionOptions,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from tests.unit.dying import PATIENCE, until


def policy(topic: str = "dead", **fields: Any) -> DeadLetterPolicy:
    return DeadLetterPolicy(topic=topic, **fields)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: policy(max_attempts=0), "max_attempts must be at least 1 .got 0"),
        (lambda: policy(max_attempts=101), "max_attempts must be at most 100 .got 101"),
        (lambda: policy(on_exhausted="drop"), "on_exhausted must be 'dead_letter' or 'park'"),
        (DeadLetterPolicy, "topic is missing"),
        (
            lambda: RetryPolicy(min_backoff=10, max_backoff=5),
            r"^RetryPolicy: min_backoff 10 s is above max_backoff 5 s: give both",
        ),
        (lambda: RetryPolicy(max_backoff=0.05), "min_backoff 0.1 s is above max_backoff 0.05 s"),
        (lambda: RetryPolicy(min_backoff=-1), "min_backoff must be at least 0"),
    ],
)
def test_a_policy_that_cannot_be_right_names_its_field(make: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        make()


@pytest.mark.parametrize("attempts", [1, 100])
def test_both_ends_of_the_attempts_are_in(attempts: int) -> None:
    assert policy(max_attempts=attempts).max_attempts == attempts


def test_a_policy_is_stored_changed_and_taken_away(ps: PubSub) -> None:
    ps.create_topic("orders")
    ps.create_topic("dead")
    sub = ps.create_subscription("billing", "orders", dead_letter=policy())
    assert sub.options == SubscriptionOptions(dead_letter=policy())
    ps.update_subscription("billing", dead_letter=policy(max_attempts=9, on_exhausted="park"))
    assert sub.options.dead_letter == policy(max_attempts=9, on_exhausted="park")
    ps.update_subscription("billing", dead_letter=None)
    assert sub.options == SubscriptionOptions()


@pytest.mark.parametrize(
    ("topic", "error", "text"),
    [
        ("orders", InvalidArgument, "the subscription's own topic"),
        ("orders.sub.billing.retry", InvalidArgument, "reserved"),
        ("orders.sub.others.retry", InvalidArgument, "reserved"),
        ("_kafka_pubsub.catalog", InvalidArgument, "reserved"),
        ("a b", InvalidArgument, "contains ' '"),
        ("missing", NotFound, r"create_topic\('missing'\) makes it"),
        ("stray", NotFound, "adopt_topic|create_topic"),
    ],
)
def test_a_topic_that_cannot_take_dead_letters_is_refused_and_nothing_is_made(
    ps: PubSub, backend: MemoryBackend, topic: str, error: type[Exception], text: str
) -> None:
    ps.create_topic("orders")
    backend.admin.create_topic("stray", 1, 1, {})
    before = backend.admin.topic_names()
    with pytest.raises(error, match=text):
        ps.create_subscription("billing", "orders", dead_letter=policy(topic))
    assert backend.admin.topic_names() == before
    assert ps.list_subscriptions() == []
    sub = ps.create_subscription("billing", "orders")
    with pytest.raises(error, match=text):
        ps.update_subscription("billing", dead_letter=policy(topic))
    assert sub.options.dead_letter is None


def test_a_topic_of_ours_is_made_to_take_and_keep_whatever_comes(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders")
    ps.create_topic("dead")
    backend.admin.update_topic("orders", {"max.message.bytes": "5000000"})
    ps.create_subscription("billing", "orders", dead_letter=policy())
    info = backend.admin.topic("dead")
    assert info.max_message_bytes > 5_000_000
    assert (info.config["retention.ms"], info.config["cleanup.policy"]) == ("-1", "delete")


def test_a_retention_that_somebody_asked_for_and_a_higher_limit_stay(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders")
    ps.create_topic("dead", retention=60)
    backend.admin.update_topic("dead", {"max.message.bytes": "90000000"})
    ps.create_subscription("billing", "orders", dead_letter=policy())
    info = backend.admin.topic("dead")
    assert (info.config["retention.ms"], info.max_message_bytes) == ("60000", 90_000_000)


def test_an_adopted_topic_is_not_changed_but_refused_with_what_it_lacks(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders")
    info = backend.admin.create_topic("dead", 1, 1, {"cleanup.policy": "compact", "retention.ms": "5000"})
    ps.adopt_topic("dead")
    with pytest.raises(FailedPrecondition, match=r"cleanup\.policy=delete") as caught:
        ps.create_subscription("billing", "orders", dead_letter=policy())
    assert "max.message.bytes=" in caught.value.message
    assert "retention" not in caught.value.message
    assert backend.admin.topic("dead") == info
    backend.admin.update_topic("dead", {"cleanup.policy": "delete", "max.message.bytes": "90000000"})
    ps.create_subscription("billing", "orders", dead_letter=policy())


def test_a_topic_that_takes_dead_letters_cannot_be_deleted(ps: PubSub) -> None:
    ps.create_topic("orders")
    ps.create_topic("dead")
    ps.create_subscription("billing", "orders", dead_letter=policy())
    with pytest.raises(FailedPrecondition, match="dead letters of subscription 'billing' go there"):
        ps.delete_topic("dead")
    ps.delete_topic("orders")
    ps.delete_topic("dead")
    assert ps.list_topics() == []


def test_exact_acks_are_an_option_that_can_be_changed(ps: PubSub) -> None:
    ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders", exactly_once=True)
    assert sub.options.exactly_once
    ps.update_subscription("billing", exactly_once=False)
    assert not sub.options.exactly_once


def test_with_one_attempt_the_first_failure_is_the_last(ps: PubSub) -> None:
    topic = ps.create_topic("orders")
    ps.create_topic("dead")
    sub = ps.create_subscription("billing", "orders", dead_letter=policy(max_attempts=1))
    topic.publish(b"x", ordering_key="k").result(PATIENCE)
    calls: list[int] = []

    def fail(message: Message) -> None:
        calls.append(message.delivery_attempt)
        raise ValueError("no")

    with sub.pull(fail):
        until(lambda: list(sub.dead_letters()))
    (dead,) = sub.dead_letters()
    assert (dead.data, dead.attempts, calls) == (b"x", 1, [1])
