"""Home topics that took no message: when each is tried again, and for which partitions of the delays."""

from __future__ import annotations

import pytest

from kafka_pubsub.delays import away
from kafka_pubsub.delays.away import AwayHomes
from kafka_pubsub.errors import BrokerUnavailable, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.model import NewRecord, TopicPartition
from tests.support import until

RECORD = NewRecord("orders", 0, None, b"x", [], 0)


class Leader(FaultPlan):
    """Whether the topic's partition has one."""

    def __init__(self) -> None:
        self.answers = True
        self.asked = 0

    def away(self, partition: TopicPartition) -> PubSubError | None:
        self.asked += partition.topic == "orders"
        return None if self.answers else BrokerUnavailable("no leader")


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def homes(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> AwayHomes:
    monkeypatch.setattr(away, "_PAUSE", 0.01)
    monkeypatch.setattr(away, "_ASK", 0.01)
    backend = MemoryBackend(faults=leader)
    backend.admin.create_topic("orders", 1, None, {})
    return AwayHomes(backend.admin)


def test_a_home_is_tried_again_when_its_leader_answers(homes: AwayHomes, leader: Leader) -> None:
    leader.answers = False
    homes.fail(1, RECORD)
    assert not homes.is_away(0, "orders"), "another partition finds out by itself"
    asked = leader.asked
    until(lambda: homes.is_away(1, "orders") and leader.asked > asked + 2)
    leader.answers = True
    until(lambda: not homes.is_away(1, "orders"))


def test_each_try_that_fails_makes_the_next_pause_longer(
    homes: AwayHomes, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: not homes.is_away(1, "orders"))
    monkeypatch.setattr(away, "_LONGEST_PAUSE", 1000.0)
    monkeypatch.setattr(away, "_PAUSE", 10.0)
    for _ in range(9):
        homes.fail(1, RECORD)
    asked = leader.asked
    assert homes.is_away(1, "orders")
    assert leader.asked == asked, "not now"
    homes.stored(1, [RECORD])
    assert not homes.is_away(1, "orders")
    monkeypatch.setattr(away, "_PAUSE", 0.01)
    homes.fail(1, RECORD)
    until(lambda: not homes.is_away(1, "orders"))
