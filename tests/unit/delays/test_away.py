"""Home topics that took no message: when each is tried again, and for which partitions of the delays."""

from __future__ import annotations

import logging
import threading

import pytest

from kafka_pubsub.delays import away
from kafka_pubsub.delays.away import AwayHomes
from kafka_pubsub.delays.homes import Home
from kafka_pubsub.errors import BrokerUnavailable, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import NewRecord, TopicPartition
from tests.support import until

RECORD = NewRecord("orders", 0, None, b"x", [], 0)
ORDERS = Home("orders", 1)


class Leader(FaultPlan):
    """Whether the topic's partition has one."""

    def __init__(self) -> None:
        self.answers = True
        self.asked = 0
        self.fails = False

    def away(self, partition: TopicPartition) -> PubSubError | None:
        self.asked += partition.topic == "orders"
        if self.fails:
            raise ZeroDivisionError("a bug")
        return None if self.answers else BrokerUnavailable("no leader")


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def homes(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> AwayHomes:
    monkeypatch.setattr(away, "_PAUSE", 0.01)
    monkeypatch.setattr(away, "_ASK", 0.01)
    return AwayHomes(admin_of(leader))


def admin_of(leader: Leader) -> Admin:
    backend = MemoryBackend(faults=leader)
    backend.admin.create_topic("orders", 1, None, {})
    return backend.admin


def test_a_home_is_tried_again_when_its_leader_answers(homes: AwayHomes, leader: Leader) -> None:
    leader.answers = False
    homes.fail(1, RECORD)
    assert not homes.is_away(0, ORDERS), "another partition finds out by itself"
    asked = leader.asked
    until(lambda: homes.is_away(1, ORDERS) and leader.asked > asked + 2)
    leader.answers = True
    until(lambda: not homes.is_away(1, ORDERS))


def test_each_try_that_fails_makes_the_next_pause_longer(leader: Leader) -> None:
    now = 100.0
    homes = AwayHomes(admin_of(leader), lambda: now)
    for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        # A try counts once, however many of its messages weren't taken.
        for _ in range(20):
            homes.fail(1, RECORD)
        asked, now = leader.asked, now + pause - 0.1
        assert homes.is_away(1, ORDERS)
        assert leader.asked == asked, "not now"
        now += 0.1
        until(lambda: not homes.is_away(1, ORDERS))
    homes.fail(1, RECORD)
    homes.stored(1, [RECORD])
    assert not homes.is_away(1, ORDERS)
    homes.fail(1, RECORD)
    now += 0.5
    until(lambda: not homes.is_away(1, ORDERS))


def test_a_leader_is_asked_again_after_an_error_of_ours(
    homes: AwayHomes, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    leader.fails = True
    homes.fail(1, RECORD)
    with caplog.at_level(logging.ERROR, "kafka_pubsub.service"):
        until(lambda: homes.is_away(1, ORDERS) and leader.asked > 2)
    assert "a bug" in caplog.text
    leader.fails = False
    until(lambda: not homes.is_away(1, ORDERS))


def test_a_leader_is_asked_again_when_there_is_a_thread_again(
    homes: AwayHomes, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refuse(thread: threading.Thread) -> None:
        tries.append(thread.name)
        raise RuntimeError("can't start new thread")

    homes.fail(1, RECORD)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        until(lambda: homes.is_away(1, ORDERS) and len(tries) > 1)
    until(lambda: not homes.is_away(1, ORDERS))


def test_a_partition_that_the_topic_has_no_more_is_forgotten(homes: AwayHomes, leader: Leader) -> None:
    leader.answers = False
    homes.fail(1, RECORD._replace(partition=3))
    assert homes.is_away(1, Home("orders", 4))
    assert not homes.is_away(1, ORDERS), "it was made again with one partition"
    assert not homes.is_away(1, Home("orders", 4))
