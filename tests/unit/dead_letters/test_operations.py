"""Purging dead letters: which nobody sees any more, and which are deleted."""

from __future__ import annotations

import pytest

from kafka_pubsub import PubSub, Subscription
from kafka_pubsub.log.memory.backend import MemoryBackend
from tests.unit.dying import PATIENCE, POLICY, QUICK, deliver, kill, publish, starts


def test_what_is_purged_is_gone_from_sight_and_from_the_front(
    ps: PubSub, sub: Subscription, backend: MemoryBackend
) -> None:
    publish(ps, *((f"k{at % 3}", b"%d" % at) for at in range(12)))
    dead_letters = kill(sub, 12)
    assert sub.purge_dead_letters(dry_run=True).count == 12
    assert len(list(sub.dead_letters())) == 12
    last = dead_letters[-1]
    result = sub.purge_dead_letters(ids=[each.id for each in dead_letters[:-1]])
    assert (result.count, result.keys) == (11, 3)
    assert list(sub.dead_letters()) == [last]
    ends = backend.admin.last_stable_offsets("dead")
    partition, offset = map(int, last.id.split(":"))
    assert starts(backend) == {**ends, partition: offset}
    assert sub.replay_dead_letters().count == 1
    assert deliver(sub, 1)[0].data == last.data


def test_a_purge_without_anything_to_purge_frees_what_was_replayed(
    ps: PubSub, sub: Subscription, backend: MemoryBackend
) -> None:
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    sub.replay_dead_letters()
    assert starts(backend) == {0: 0, 1: 0}, "a replay deletes nothing"
    assert sub.purge_dead_letters().count == 0
    assert starts(backend) == backend.admin.last_stable_offsets("dead")


@pytest.mark.parametrize("who", ["a stranger", "another subscription", "a reader"])
def test_a_purge_never_deletes_what_others_need(
    ps: PubSub, sub: Subscription, backend: MemoryBackend, who: str
) -> None:
    if who == "a stranger":
        for key in (f"s{at}" for at in range(8)):
            ps.topic("dead").publish(b"hello", ordering_key=key).result(PATIENCE)
    elif who == "a reader":
        ps.create_subscription("graves", "dead")
    else:
        other = ps.create_subscription(
            "mail", "orders", message_ordering=True, retry=QUICK, dead_letter=POLICY
        )
        publish(ps, *((f"m{at}", b"0") for at in range(8)))
        kill(other, 8)
        kill(sub, 8)
    publish(ps, ("k", b"1"))
    count = len(kill(sub, 9 if who == "another subscription" else 1))
    assert sub.purge_dead_letters().count == count
    assert list(sub.dead_letters()) == []
    assert starts(backend) == {0: 0, 1: 0}


def test_an_adopted_topic_is_never_cut(ps: PubSub, backend: MemoryBackend) -> None:
    ps.create_topic("orders", partitions=2)
    limit = str(3 * 1024 * 1024 + 2 * 1024 * 1024)
    backend.admin.create_topic("dead", 2, 1, {"max.message.bytes": limit})
    ps.adopt_topic("dead")
    sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=QUICK, dead_letter=POLICY)
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    assert sub.purge_dead_letters().count == 1
    assert list(sub.dead_letters()) == []
    assert starts(backend) == {0: 0, 1: 0}
