"""What a call may say of a multicast."""

from __future__ import annotations

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, NotFound


@pytest.mark.parametrize(
    ("names", "error", "text"),
    [
        ([], InvalidArgument, "topics: name at least one"),
        ("ab", InvalidArgument, "topics: give a list"),
        (["a", "a"], InvalidArgument, "topics: 'a' is there twice"),
        (["a", 7], InvalidArgument, "topics: .* 7 isn't one"),
        (["a", "plain"], FailedPrecondition, "topics: topic 'plain' isn't causal"),
        (["a", "nowhere"], NotFound, "topic 'nowhere' not found"),
    ],
)
def test_wrong_topics_are_refused_by_the_call(
    topics: PubSub, names: list[str], error: type[Exception], text: str
) -> None:
    topics.create_topic("plain")
    with pytest.raises(error, match=text):
        topics.publish_multi(names, b"x")


def test_too_many_topics_and_too_large_a_message_are_refused(topics: PubSub) -> None:
    for number in range(65):
        topics.create_topic(f"t{number}", causal=True)
    with pytest.raises(InvalidArgument, match="at most 64 topics"):
        topics.publish_multi([f"t{number}" for number in range(65)], b"x")
    with pytest.raises(InvalidArgument, match="topic 'a'"):
        topics.publish_multi(["a", "b"], bytes(2_000_000))


def test_a_causal_topic_has_neither_lanes_nor_delays(topics: PubSub) -> None:
    with pytest.raises(InvalidArgument, match="priorities: a causal topic has one order"):
        topics.create_topic("d", causal=True, priorities=3)
    with pytest.raises(InvalidArgument, match="transient: a causal topic has one order"):
        topics.create_topic("d", causal=True, transient=True)
    with pytest.raises(InvalidArgument, match="priorities: a causal topic has one order"):
        topics.update_topic("a", priorities=2)
    with pytest.raises(FailedPrecondition, match="topic 'a' is causal"):
        topics.topic("a").publish(b"x", delay=5)
    with pytest.raises(FailedPrecondition, match="topic 'a' is causal"):
        topics.topic("a").publish(b"x", priority=1)
    with pytest.raises(FailedPrecondition, match="topic 'a' is causal"):
        topics.repartition_topic("a", 3)
