"""Releasing and dropping messages that are parked."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from kafka_pubsub import (
    DeadLetterPolicy,
    FailedPrecondition,
    PubSub,
    Subscription,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.subscribe.admin import exclusive_session
from kafka_pubsub.subscribe.formats.record import FOREVER, RetryInfo, retry_headers
from kafka_pubsub.subscribe.retry_topic.key_states import RetryContents
from tests.unit.crashing import checkpointed
from tests.unit.dying import QUICK, Handler, deliver, publish, until
from tests.unit.subscribe.retry_topic.test_key_states import RETRY, held_up, park, parked


@pytest.fixture(autouse=True)
def _built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive_session, "PATIENCE", 0.3)


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    ps.create_topic("orders", partitions=2)
    ps.create_topic("dead")
    policy = DeadLetterPolicy(topic="dead", max_attempts=5, on_exhausted="park")
    return ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=QUICK, dead_letter=policy, ack_deadline=60
    )


def test_a_released_message_is_tried_again_before_its_successors(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("bad", b"1"), ("bad", b"2"), ("bad", b"3"), ("good", b"4"))
    park(sub, b"1")
    assert sub.release(dry_run=True).count == 1
    assert len(parked(sub)) == 1
    result = sub.release()
    assert (result.count, result.keys) == (1, 1)
    messages = deliver(sub, 3)
    assert [(each.data, each.delivery_attempt) for each in messages] == [(b"1", 1), (b"2", 1), (b"3", 1)]
    until(lambda: sub.keys() == [])


def test_a_message_that_waits_for_its_time_is_released_too(ps: PubSub, sub: Subscription) -> None:
    """A clock that was wrong may have put the message off for days."""
    publish(ps, ("slow", b"1"), ("slow", b"2"))
    with sub.pull(lambda message: message.nack(delay=86_400)):
        until(lambda: [each.state for each in held_up(sub)] == ["waiting"])
    (state,) = held_up(sub)
    assert state.reason == "nacked with a delay"
    assert sub.release(drop=True, dry_run=True).count == 0
    assert sub.release(dry_run=True).count == 1
    assert sub.release(keys=["slow"]).count == 1
    messages = deliver(sub, 2)
    assert [(each.data, each.delivery_attempt) for each in messages] == [(b"1", 1), (b"2", 1)]


def test_a_dropped_message_becomes_a_dead_letter_and_its_key_goes_on(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("bad", b"1"), ("bad", b"2"))
    park(sub, b"1")
    assert sub.release(keys=["bad"], drop=True).count == 1
    assert [each.data for each in deliver(sub, 1)] == [b"2"]
    (dead_letter,) = sub.dead_letters()
    assert (dead_letter.data, dead_letter.attempts, dead_letter.error) == (b"1", 5, "no 1")
    assert dead_letter.reason.startswith("dropped by a release")
    assert sub.replay_dead_letters().count == 1
    assert [each.data for each in deliver(sub, 1)] == [b"1"]


@pytest.mark.parametrize(
    ("chosen", "data"),
    [({"keys": ["a"]}, b"1"), ({"error": "no 2"}, b"2"), ({"since": datetime(2100, 1, 1, tzinfo=UTC)}, None)],
)
def test_some_are_released_and_the_others_stay(
    ps: PubSub, sub: Subscription, chosen: dict[str, Any], data: bytes | None
) -> None:
    publish(ps, ("a", b"1"), ("b", b"2"))
    park(sub, b"1", b"2")
    assert sub.release(**chosen).count == (data is not None)
    if data is not None:
        assert [each.data for each in deliver(sub, 1)] == [data]
    assert len(parked(sub)) == (1 if data else 2)


def test_a_message_that_fails_again_after_its_release_is_parked_again(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("a", b"1"))
    (first,) = park(sub, b"1")
    sub.release()
    callback = Handler(lambda message: message.data == b"1")
    with sub.pull(callback):
        until(lambda: any(each.state != "parked" for each in held_up(sub)))
        until(lambda: len(parked(sub)) == 1)
    (again,) = parked(sub)
    assert (again.offset, again.attempt) == (first.offset, 5)


def test_nothing_parked_is_nothing_done(sub: Subscription) -> None:
    assert sub.release().count == 0
    assert sub.release(keys=["k"], drop=True).count == 0


def test_dropping_needs_a_policy(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("a", b"1"))
    park(sub, b"1")
    ps.update_subscription("billing", dead_letter=None)
    with pytest.raises(FailedPrecondition, match="no dead-letter policy, so there is nowhere to drop"):
        sub.release(drop=True)
    assert sub.release().count == 1
    deliver(sub, 1)


def test_what_a_checkpoint_reports_is_not_released_nor_is_the_checkpoint(
    sub: Subscription, cluster: MemoryCluster, backend: MemoryBackend
) -> None:
    record = backend.catalog.subscriptions()["billing"]
    for origin in range(3):
        headers = retry_headers(None, RetryInfo(record.topic_id, 0, origin, due=FOREVER))
        cluster.append(RETRY, 0, b"", b"k%d" % origin, headers)
    checkpointed(cluster, RETRY, record.topic_id, (1, 2))
    assert sub.release(dry_run=True).count == 2
    with closing(backend.record_fetch()) as fetch:
        found = RetryContents(backend, record, fetch).messages(0)
        assert [message.offset() for message in found] == [0, 2]
