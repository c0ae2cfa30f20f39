"""A subscription with dead letters, and replays that don't pause."""

from __future__ import annotations

import pytest

from kafka_pubsub import PubSub, Subscription
from kafka_pubsub.dead_letters import replay
from kafka_pubsub.subscribe.admin import exclusive_session
from tests.unit.dying import POLICY, QUICK


@pytest.fixture(autouse=True)
def _built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "PAUSE", 0.0)
    monkeypatch.setattr(exclusive_session, "PATIENCE", 0.3)


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    ps.create_topic("orders", partitions=2)
    ps.create_topic("dead", partitions=2)
    return ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=QUICK, dead_letter=POLICY, ack_deadline=60
    )
