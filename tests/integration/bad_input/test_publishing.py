"""What can't be published is refused by the call, names the field, and costs nothing that can be published."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_pubsub import InvalidArgument, NotFound, PubSub, PubSubError, Topic
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Deliveries, Room

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": "text"}, r"^data must be bytes, not str: encode it first, or use publish_json$"),
    ({"data": None}, r"^data must be bytes, not NoneType"),
    ({"data": bytearray(b"x")}, r"^data must be bytes, not bytearray: pass bytes\(data\)$"),
    ({"data": memoryview(b"x")}, r"^data must be bytes, not memoryview"),
    ({"data": 7}, r"^data must be bytes, not int"),
    ({"attributes": "text"}, r"^attributes must be a mapping of str to str, not str$"),
    ({"attributes": {"n": 1}}, r"^attributes: the value of 'n' must be a string, not int$"),
    ({"attributes": {"n": b"x"}}, r"^attributes: the value of 'n' must be a string, not bytes$"),
    ({"attributes": {"n": None}}, r"^attributes: the value of 'n' must be a string, not NoneType$"),
    ({"attributes": {1: "x"}}, r"^attributes: the name 1 must be a string, not int$"),
    ({"attributes": {"ps-id": "x"}}, r"^attributes: the name 'ps-id' begins with 'ps-', which is reserved"),
    ({"attributes": {"a\0b": "x"}}, r"^attributes: the name 'a\\x00b' contains a NUL"),
    ({"attributes": {"n": "\ud800"}}, r"^attributes: the value of 'n' can't be encoded as UTF-8"),
    ({"attributes": {"\udfff": "x"}}, r"^attributes: the name .* can't be encoded as UTF-8"),
    ({"ordering_key": ""}, r"^Ordering key cannot be empty$"),
    ({"ordering_key": "x" * 1025}, r"^Ordering key exceeds maximum length of 1024 bytes$"),
    ({"ordering_key": b"bytes"}, r"^ordering_key must be a string, not bytes"),
    ({"ordering_key": 7}, r"^ordering_key must be a string, not int"),
    ({"ordering_key": "a\ud800"}, r"^ordering_key can't be encoded as UTF-8: character 1 is the lone surrogate"),
    ({"data": b"x" * 11_000_000}, r"^message of 1100\d{4} bytes .* exceeds the limit of topic .* max.message.bytes="),
    ({"attributes": {"n": "x" * 11_000_000}}, r"^message of 1100\d{4} bytes .* exceeds the limit"),
]  # fmt: skip


def test_what_cannot_be_published_is_refused_and_costs_nothing_else(room: Room, log: Deliveries) -> None:
    """Between good messages of a key: each wrong one raises at once, none of the good ones is lost or paused."""
    topic, subscription = room.pair()
    futures: list[Future[str]] = []
    for number, (wrong, text) in enumerate(WRONG):
        futures.append(topic.publish(b"%d" % number, ordering_key="key"))
        with pytest.raises(InvalidArgument, match=text) as refused:
            topic.publish(**{"data": b"x", "ordering_key": "key", **wrong})
        assert refused.value.code == 3
        assert len(refused.value.message) < 500, "a wrong value isn't repeated at length"
    for future in futures:
        future.result(PATIENCE)
    with subscription.pull(log.ack):
        log.wait_for(len(WRONG))
        topic.publish(b"last", ordering_key="key").result(PATIENCE)
        log.wait_for(len(WRONG) + 1)
    assert log.bodies == [*(b"%d" % number for number in range(len(WRONG))), b"last"]


@pytest.mark.parametrize(
    "obj",
    [object(), {"x": float("nan")}, {1, 2}, b"bytes", "\ud800"],
    ids=["object", "nan", "set", "bytes", "surrogate"],
)
def test_what_json_cannot_say_is_refused(room: Room, obj: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^obj can't be published as JSON"):
        room.topic(partitions=1).publish_json(obj)


def test_the_limit_is_the_topics_own(kafka: RunningKafka, ps: PubSub, room: Room, log: Deliveries) -> None:
    name = f"{room.name}-small"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made = admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "2000"})])
    made[name].result(PATIENCE)
    topic = ps.adopt_topic(name)
    subscription = room.subscription(topic)
    with pytest.raises(
        InvalidArgument, match=r"max\.message\.bytes=2000: make it smaller or raise the limit"
    ):
        topic.publish(b"x" * 2000, ordering_key="key")
    with subscription.pull(log.ack):
        topic.publish(b"x" * 1500, ordering_key="key").result(PATIENCE)
        log.wait_for(1)


@pytest.mark.parametrize(
    "use",
    [
        lambda topic: topic.publish(b"x").result(PATIENCE),
        lambda topic: topic.publish(b"x", ordering_key="key").result(PATIENCE),
        lambda topic: topic.options,
        lambda topic: topic.configure(message_ordering=True),
        lambda topic: topic.delete(),
    ],
    ids=["publish", "publish with a key", "options", "configure", "delete"],
)
def test_an_unknown_topic_is_not_found_and_not_made(room: Room, use: Callable[[Topic], object]) -> None:
    name = f"{room.name}-unknown"
    with pytest.raises(NotFound, match=name) as refused:
        use(room.ps.topic(name))
    assert refused.value.code == 5
    assert name not in [topic.name for topic in room.ps.list_topics()]


def test_a_subscription_of_an_unknown_topic_is_not_made(room: Room) -> None:
    with pytest.raises(NotFound, match="unknown-topic"):
        room.ps.create_subscription(f"{room.name}-s", "unknown-topic")
    assert f"{room.name}-s" not in [each.name for each in room.ps.list_subscriptions()]


def test_the_longest_names_work_on_a_real_kafka_and_one_more_is_refused(
    kafka: RunningKafka, room: Room, log: Deliveries
) -> None:
    longest = f"{room.name}-".ljust(249 - len(".lane.p7"), "x")
    with pytest.raises(InvalidArgument, match="topic name has 242 characters, at most 241"):
        room.ps.create_topic(f"{longest}x")
    topic = room.ps.create_topic(longest, partitions=1)
    topic.publish(b"x").result(PATIENCE)
    # An adopted one may have all that Kafka allows.
    adopted = f"{room.name}-a".ljust(249, "y")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(adopted, 1, 1)])[adopted].result(PATIENCE)
    assert room.ps.adopt_topic(adopted).publish(b"x").result(PATIENCE)
    # The subscription's derived name must fit as well.
    short = room.topic(partitions=1)
    name = f"{room.name}-s".ljust(249 - len(f"{short.name}.sub..retry"), "z")
    with pytest.raises(InvalidArgument, match="choose a shorter name"):
        room.ps.create_subscription(f"{name}z", short)
    with room.ps.create_subscription(name, short).pull(log.ack):
        short.publish(b"x").result(PATIENCE)
        log.wait_for(1)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "ä", "a/b", "a\n", "_own", "ps-own", "a.inbox", "a.lane.p1", 7]
)
def test_names_that_kafka_cannot_hold_or_that_are_reserved_are_refused_everywhere(
    ps: PubSub, name: Any
) -> None:
    for call in (ps.create_topic, ps.adopt_topic):
        with pytest.raises(InvalidArgument, match=r"^topic name") as refused:
            call(name)
        assert isinstance(refused.value, PubSubError)
