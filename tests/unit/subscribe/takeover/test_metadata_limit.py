"""Brokers that store less beside a position than a subscription needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, Message, PubSub
from kafka_pubsub.log.memory import groups
from kafka_pubsub.log.memory.admin import MemoryAdmin
from tests.unit.subscribe.workers.holding import PATIENCE

REFUSAL = r"offset\.metadata\.max\.bytes=1024, and a subscription needs 4096"


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=1)
        yield ps


def _ack(message: Message) -> None:
    message.ack()


def test_no_subscription_is_made_that_could_not_be_used(ps: PubSub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryAdmin, "metadata_limit", lambda self: 1024)
    with pytest.raises(FailedPrecondition, match=REFUSAL):
        ps.create_subscription("billing", "orders")
    assert ps.list_subscriptions() == []


def test_one_that_was_made_before_is_not_received_from_until_the_setting_is_raised(
    ps: PubSub, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = ps.create_subscription("billing", "orders")
    limits = [1024, 4096]
    with PubSub.in_memory(ps._cluster._connected().backend) as later:
        monkeypatch.setattr(MemoryAdmin, "metadata_limit", lambda self: limits.pop(0))
        with pytest.raises(FailedPrecondition, match=REFUSAL):
            later.subscription(sub.name).pull(_ack)
        with later.subscription(sub.name).pull(_ack):
            assert limits == []
        with later.subscription(sub.name).pull(_ack):
            pass  # a good answer isn't asked for again


def test_where_it_can_not_be_seen_the_refused_commit_ends_the_stream_and_names_it(
    ps: PubSub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going on, it would lose the acks of a whole run at its end, with nothing but warnings in the log."""
    monkeypatch.setattr(MemoryAdmin, "metadata_limit", lambda self: None)
    monkeypatch.setattr(groups, "METADATA_LIMIT", 5)
    with ps.create_subscription("billing", "orders").pull(_ack) as stream:
        ps.topic("orders").publish(b"1").result(PATIENCE)
        with pytest.raises(InvalidArgument, match=r"offset\.metadata\.max\.bytes"):
            stream.result(PATIENCE)
