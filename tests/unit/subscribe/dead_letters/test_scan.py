"""Which records of a dead-letter topic belong to a subscription and are still to be handled."""

from __future__ import annotations

import pytest

from kafka_pubsub import (
    FailedPrecondition,
    PubSub,
    Subscription,
)
from tests.unit.dying import PATIENCE, POLICY, QUICK, deliver, kill, publish


def test_a_shared_topic_gives_each_its_own(ps: PubSub, sub: Subscription) -> None:
    other = ps.create_subscription("mail", "orders", message_ordering=True, retry=QUICK, dead_letter=POLICY)
    publish(ps, ("k", b"1"), ("k", b"2"))
    kill(sub, 2)
    kill(other, 2)
    ps.topic("dead").publish(b"a stranger's").result(PATIENCE)
    ps.topic("dead").publish(b"nearly ours", ordering_key="k").result(PATIENCE)
    assert {each.subscription for each in sub.dead_letters()} == {"billing"}
    assert sub.replay_dead_letters().count == 2
    assert len(list(other.dead_letters())) == 2
    assert sorted(message.data for message in deliver(sub, 2)) == [b"1", b"2"]
    assert other.replay_dead_letters().count == 2
    deliver(other, 2)


def test_what_comes_from_a_topic_that_is_gone_stays_and_is_counted(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    ps.delete_topic("orders")
    ps.delete_subscription("billing")
    ps.create_topic("orders", partitions=2)
    again = ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=QUICK, dead_letter=POLICY
    )
    publish(ps, ("k", b"2"))
    kill(again, 2)
    result = again.replay_dead_letters()
    assert result.count == 1
    ((reason, count),) = result.skipped.items()
    assert reason == "the topic 'orders' that it was published to was deleted"
    assert count == 1
    (left,) = again.dead_letters()
    assert left.problem == reason
    assert left.data == b"1"
    deliver(again, 1)


def test_after_the_policy_has_changed_the_old_topic_can_be_named(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    ps.update_subscription("billing", dead_letter=None)
    with pytest.raises(FailedPrecondition, match="no dead-letter policy"):
        list(sub.dead_letters())
    assert sub.replay_dead_letters(topic="dead").count == 1
    deliver(sub, 1)
