"""A wrong value of a policy or of an option is a line that names the field, what is allowed and what was given."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pubsub import AlreadyExists, DeadLetterPolicy, FlowControl, InvalidArgument, PubSub, RetryPolicy


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (DeadLetterPolicy, {"topic": "dead", "max_attempts": 5.5}, "max_attempts must be a whole number (got 5.5)"),
        (DeadLetterPolicy, {"topic": 7}, "topic must be text (got 7)"),
        (RetryPolicy, {"max_backoff": 90_000}, "max_backoff must be at most 86400 (got 90000)"),
        (RetryPolicy, {"max_backof": 90}, "max_backof is no setting (got 90)"),
        (RetryPolicy, {"min_backoff": "soon"}, "min_backoff must be a number (got 'soon')"),
        (RetryPolicy, {"min_backoff": float("inf")}, "min_backoff: must be a finite number of seconds (got inf)"),
        (FlowControl, {"max_messages": 0, "max_bytes": 1}, "max_messages must be at least 1 (got 0); max_bytes must"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(kind: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        kind(**fields)
    assert caught.value.message.startswith(f"{kind.__name__}: {said}")


def test_a_wrong_option_of_a_topic_and_of_a_subscription_is_named() -> None:
    with PubSub.in_memory() as ps:
        with pytest.raises(
            InvalidArgument, match=r"^TopicOptions: partitions must be at least 1 \(got -1\)$"
        ):
            ps.create_topic("orders", partitions=-1)
        with pytest.raises(InvalidArgument, match=r"^TopicOptions: retention must be more than 0 \(got 0"):
            ps.create_topic("orders", retention=0)
        ps.create_topic("orders")
        with pytest.raises(InvalidArgument, match=r"^SubscriptionOptions: ack_deadline must be at most 600"):
            ps.create_subscription("billing", topic="orders", ack_deadline=1200)


def test_a_wrong_name_of_an_option_is_refused_by_the_call_and_by_the_type_checker() -> None:
    with PubSub.in_memory() as ps:
        with pytest.raises(TypeError, match=r"create_topic\(\) .*'partition'. Did you mean 'partitions'\?"):
            ps.create_topic("orders", partition=3)  # type: ignore[call-arg]
        topic = ps.create_topic("orders")
        # No topic becomes causal later, because it would have no inbox.
        with pytest.raises(TypeError, match=r"update_topic\(\) .*'causal'$"):
            ps.update_topic("orders", causal=True)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"'dead_leter'\. Did you mean 'dead_letter'"):
            ps.create_subscription("billing", "orders", dead_leter=None)  # type: ignore[call-arg]
        subscription = ps.create_subscription("billing", "orders")
        with pytest.raises(TypeError, match=r"'ackdeadline'\. Did you mean 'ack_deadline'"):
            ps.update_subscription("billing", ackdeadline=20)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="'key'"):
            topic.publish_json({}, key="a")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="'until_'"):
            subscription.purge_dead_letters(until_=None)  # type: ignore[call-arg]


def test_none_returns_a_setting_to_its_default() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", labels={"team": "shop"})
        ps.create_subscription("billing", "orders", ack_deadline=60, strict=True, retry=RetryPolicy())
        changed = ps.update_subscription("billing", ack_deadline=None, strict=None).options
        assert (changed.ack_deadline, changed.strict, changed.retry) == (10, False, RetryPolicy())
        assert ps.update_topic("orders", labels=None).options.labels == {}


def test_a_false_that_you_give_is_compared_with_what_exists() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        ps.create_subscription("billing", "orders", exactly_once=True)
        ps.create_subscription("billing", "orders", exist_ok=True)
        with pytest.raises(AlreadyExists, match="exactly_once is True, not False"):
            ps.create_subscription("billing", "orders", exactly_once=False, exist_ok=True)
