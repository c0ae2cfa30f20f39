"""A wrong value of a policy or of an option is one line that names the field, what is allowed and what was given."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pubsub import DeadLetterPolicy, FlowControl, InvalidArgument, PubSub, RetryPolicy


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
