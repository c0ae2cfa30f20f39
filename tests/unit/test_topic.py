"""Handles of a topic, over memory: JSON, and a single order for all of them."""

from __future__ import annotations

import pytest

from kafka_pubsub import InvalidArgument, Message, PubSub


def receive_one(ps: PubSub, obj: object) -> Message:
    """The message that comes of `publish_json(obj)`."""
    topic = ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    topic.publish_json(obj, ordering_key="k", attributes={"a": "b"}).result(timeout=10)
    (message,) = sub.receive(10, timeout=10)
    message.ack()
    return message


def test_json_is_published_compact_and_unescaped_and_comes_back(ps: PubSub) -> None:
    message = receive_one(ps, {"type": "login", "who": "Zoë", "items": [1, None]})
    assert message.data == '{"type":"login","who":"Zoë","items":[1,null]}'.encode()
    assert message.json() == {"type": "login", "who": "Zoë", "items": [1, None]}
    assert (message.ordering_key, message.attributes) == ("k", {"a": "b"})


def endless() -> list[object]:
    nested: list[object] = []
    nested.append(nested)
    return nested


@pytest.mark.parametrize(
    "obj", [{1, 2}, b"x", object(), {"a": float("nan")}, {(1, 2): 3}, endless(), "\ud800"]
)
def test_what_json_cannot_say_is_refused(ps: PubSub, obj: object) -> None:
    topic = ps.create_topic("orders")
    with pytest.raises(InvalidArgument, match="obj can't be published as JSON"):
        topic.publish_json(obj)


def test_all_handles_on_a_topic_keep_one_order(ps: PubSub) -> None:
    ps.create_topic("orders")
    futures = [ps.topic("orders").publish(b"%d" % number, ordering_key="k") for number in range(100)]
    offsets = [int(future.result(timeout=10).rpartition(":")[2]) for future in futures]
    assert offsets == sorted(offsets)
