"""Handles of a topic, over memory: JSON, and a single order for all of them."""

from __future__ import annotations

import pytest

from kafka_pubsub import InvalidArgument, Message, PubSub, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend


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


class Silent(FaultPlan):
    """A cluster that mustn't be asked."""

    asked = False

    def request(self, operation: str, name: str) -> PubSubError | None:
        self.asked = True
        return None


def test_no_property_of_a_handle_asks_the_cluster() -> None:
    silent = Silent()
    with PubSub.in_memory(MemoryBackend(faults=silent)) as ps:
        topic = ps.create_topic("orders")
        sub = ps.create_subscription("billing", "orders")
        silent.asked = False
        for handle in (ps, topic, sub):
            for name, value in vars(type(handle)).items():
                if isinstance(value, property):
                    getattr(handle, name)
                    assert not silent.asked, f"{type(handle).__name__}.{name}"
        topic.options()
        assert silent.asked
