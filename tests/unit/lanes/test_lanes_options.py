"""What a subscription and a message say of lanes."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pubsub import InvalidArgument, PubSub, Topic
from tests.unit.lanes.handling import Handler


def test_ageing_and_strict_are_stored_and_changed(ps: PubSub, topic: Topic) -> None:
    sub = ps.create_subscription("billing", topic)
    assert (sub.options.ageing, sub.options.strict) == (5, False)
    sub = ps.create_subscription("mail", topic, ageing=0.5, strict=True)
    assert (sub.options.ageing, sub.options.strict) == (0.5, True)
    changed = ps.update_subscription("mail", ageing=60, strict=False)
    assert (changed.options.ageing, changed.options.strict) == (60, False)
    again = ps.create_subscription("mail", topic, ageing=60, exist_ok=True)
    assert again.options == changed.options


@pytest.mark.parametrize("ageing", [0, -1, 3601, float("nan"), "soon"])
def test_a_wrong_ageing_is_named(ps: PubSub, topic: Topic, ageing: Any) -> None:
    with pytest.raises(InvalidArgument, match="ageing"):
        ps.create_subscription("billing", topic, ageing=ageing)
    ps.create_subscription("billing", topic)
    with pytest.raises(InvalidArgument, match="ageing"):
        ps.update_subscription("billing", ageing=ageing)


def test_a_message_says_its_lane(ps: PubSub, topic: Topic) -> None:
    plain = ps.create_topic("plain", partitions=1)
    few = ps.create_topic("few", partitions=1, priorities=3)
    classes = ps.create_topic("classes", partitions=1, transient=True)
    for each in (topic, plain, few, classes):
        sub = ps.create_subscription(f"of-{each.name}", each)
        each.publish(b"default").result(5)
        if each is topic:
            each.publish(b"high", priority=9).result(5)
            each.publish(b"transient", durable=False).result(5)
        handler = Handler()
        with sub.pull(handler):
            handler.until(3 if each is topic else 1)
        lanes = {data: (priority, durable) for data, priority, durable, _ in handler.came}
        if each is topic:
            assert lanes == {b"high": (9, True), b"default": (4, True), b"transient": (4, False)}
        else:
            assert lanes == {b"default": (1 if each is few else 0, True)}
