"""The broker has forgotten how far sequencers were: nothing is delivered again, and what the error advises works."""

from __future__ import annotations

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.errors import DeadlineExceeded, FailedPrecondition
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.multicast.layout import GROUP
from kafka_pubsub.multicast.service import Sequencer
from tests.causal import PATIENCE, bodies
from tests.support import until


def forget(ps: PubSub) -> None:
    until(lambda: ps.multicast.sequencers() == 0, "an empty group")
    ps._cluster.backend.admin.delete_group(GROUP)


def staged(ps: PubSub) -> int:
    return sum(ps._cluster.backend.admin.high_watermarks([TopicPartition("a.inbox", 0)]).values())


def test_a_sequencer_refuses_to_guess_and_says_what_to_do() -> None:
    names = ["a", "b"]
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        for name in names:
            ps.create_topic(name, causal=True)
        with Sequencer(ps):
            ps.publish_multi(names, b"1").result(PATIENCE)
            until(lambda: all(bodies(broker, name) == [b"1"] for name in names))
        forget(ps)
        before = staged(ps)
        waiting = ps.publish_multi(names, b"2")
        until(lambda: staged(ps) > before)
        for name in names:
            advice = f"delete_topic({name!r}), and create_topic({name!r}, causal=True)"
            with Sequencer(ps) as again:
                until(lambda: advice in str(again.health().error), advice)  # noqa: B023
            assert all(bodies(broker, each) == [b"1"] for each in names[names.index(name) :])
            with pytest.raises(FailedPrecondition, match=r"notify: .* has forgotten which"):
                ps.delete_topic(name, notify=[each for each in names if each != name])
            ps.delete_topic(name)
            ps.create_topic(name, causal=True)
        with Sequencer(ps):
            ps.publish_multi(names, b"3").result(PATIENCE)
            until(lambda: all(bodies(broker, name) == [b"3"] for name in names))
            until(lambda: not any(each.problem or each.pending for each in ps.multicast.status()))
        with pytest.raises(DeadlineExceeded, match="unknown whether it is delivered"):
            waiting.result(PATIENCE)


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_a_deleted_topic_has_left_isnt_delivered_to_the_next_one(by_hand: bool) -> None:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        ps.create_topic("a", causal=True)
        with Sequencer(ps):
            ps.publish_multi(["a"], b"1").result(PATIENCE)
            until(lambda: bodies(broker, "a") == [b"1"])
            if by_hand:
                ps._cluster.backend.admin.delete_topic("a")
            else:
                ps.delete_topic("a")
        forget(ps)
        with pytest.raises(FailedPrecondition, match=r"delete_topic\('a'\) removes it"):
            ps.create_topic("a", causal=True)
        ps.delete_topic("a")
        ps.create_topic("a", causal=True)
        with Sequencer(ps):
            ps.publish_multi(["a"], b"2").result(PATIENCE)
            until(lambda: bodies(broker, "a") == [b"2"])


def test_an_earlier_topic_had_other_partitions() -> None:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        ps.create_topic("a", causal=True)
        with Sequencer(ps):
            ps.delete_topic("a")
            with pytest.raises(FailedPrecondition, match=r"partitions: .* delete_topic\('a'\) removes it"):
                ps.create_topic("a", causal=True, partitions=2)
            ps.delete_topic("a")
            ps.create_topic("a", causal=True, partitions=2)
