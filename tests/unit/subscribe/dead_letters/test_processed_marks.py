"""The marks of what was replayed: where they lie, and that damaged ones lose nothing."""

from __future__ import annotations

import pytest

from kafka_pubsub import (
    FailedPrecondition,
    PubSub,
    Subscription,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.subscribe.dead_letters.processed_marks import MARKS, MARKS_TOPIC
from tests.unit.dying import deliver, kill, publish


def test_where_nothing_may_be_made_the_marks_must_be_there(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    with (
        PubSub.in_memory(MemoryBackend(cluster=cluster), create=False) as careful,
        pytest.raises(FailedPrecondition, match=f"'{MARKS_TOPIC}' doesn't exist.*cleanup.policy=compact"),
    ):
        careful.subscription("billing").replay_dead_letters()


def test_damaged_marks_show_a_dead_letter_again_and_nothing_worse(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    publish(ps, ("k", b"1"), ("k", b"2"))
    dead_letters = kill(sub, 2)
    sub.replay_dead_letters(ids=[dead_letters[0].id])
    for key in (None, b"", b"1/billing/x", b"1/billing/x/y/z", b"2/billing/t/0/0"):
        cluster.append(MARKS_TOPIC, 0, b"rubbish", key)
    assert [each.id for each in sub.dead_letters()] == [dead_letters[1].id]
    good = cluster.log(MARKS).at(0)
    assert good is not None
    cluster.append(MARKS_TOPIC, 0, (good.value() or b"")[:-1] + b"?", good.key())
    assert [each.id for each in sub.dead_letters()] == [dead_letters[1].id]
    deliver(sub, 1)
