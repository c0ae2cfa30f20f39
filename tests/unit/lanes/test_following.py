"""A key in several lanes: its later message waits until the earlier message is finished, in whichever way."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_pubsub import DeadLetterPolicy, FlowControl, Message, PubSub, RetryPolicy, Topic
from tests.support import until
from tests.unit.lanes.handling import Handler

PATIENCE = 30.0


def publish(topic: Topic, data: bytes, priority: int, key: str = "k", *, durable: bool = True) -> None:
    topic.publish(data, priority=priority, durable=durable, ordering_key=key).result(PATIENCE)


def held(event: threading.Event) -> Callable[[Message], None]:
    def hold(message: Message) -> None:
        assert event.wait(PATIENCE)
        message.ack()

    return hold


def nacked_once(message: Message) -> None:
    if message.delivery_attempt == 1:
        message.nack()
    else:
        message.ack()


@pytest.mark.parametrize(
    ("low", "high"), [((2, True), (9, True)), ((4, True), (4, False)), ((9, False), (0, True))]
)
def test_a_key_has_one_lane_while_it_has_unfinished_messages(
    ps: PubSub, topic: Topic, low: tuple[int, bool], high: tuple[int, bool]
) -> None:
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    goes_on = threading.Event()
    handler = Handler({b"first": held(goes_on)})
    with sub.pull(handler) as stream:
        publish(topic, b"first", low[0], durable=low[1])
        publish(topic, b"second", high[0], durable=high[1])
        publish(topic, b"third", high[0], durable=high[1])
        publish(topic, b"other", 0, key="another")
        handler.until(2)
        until(lambda: stream.stats.received == 4)
        assert set(handler.data) == {b"first", b"other"}
        goes_on.set()
        handler.until(4)
    assert [data for data in handler.data if data != b"other"] == [b"first", b"second", b"third"]


def test_without_ordering_no_lane_waits_for_another(ps: PubSub, topic: Topic) -> None:
    sub = ps.create_subscription("billing", topic)
    goes_on = threading.Event()
    handler = Handler({b"first": held(goes_on)})
    with sub.pull(handler):
        publish(topic, b"first", 2)
        handler.until(1)
        publish(topic, b"second", 9)
        handler.until(2)
        goes_on.set()


def test_a_key_goes_on_in_its_next_lane_only_after_the_retry_of_its_last_one(
    ps: PubSub, topic: Topic
) -> None:
    sub = ps.create_subscription(
        "billing", topic, message_ordering=True, retry=RetryPolicy(min_backoff=0.1, max_backoff=0.1)
    )
    publish(topic, b"first", 2)
    publish(topic, b"second", 9)
    publish(topic, b"third", 4, durable=False)
    handler = Handler({b"first": nacked_once, b"second": nacked_once})
    with sub.pull(handler):
        handler.until(5)
    assert handler.came == [
        (b"first", 2, True, 1),
        (b"first", 2, True, 2),
        (b"second", 9, True, 1),
        (b"second", 9, True, 2),
        (b"third", 4, False, 1),
    ]


def test_a_dead_letter_ends_the_wait_of_its_key(ps: PubSub, topic: Topic) -> None:
    dead = ps.create_topic("dead", partitions=1)
    dead_subscription = ps.create_subscription("graves", dead)
    sub = ps.create_subscription(
        "billing",
        topic,
        message_ordering=True,
        retry=RetryPolicy(min_backoff=0.05, max_backoff=0.05),
        dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
    )
    publish(topic, b"first", 8)
    publish(topic, b"second", 1)
    handler = Handler({b"first": Message.nack})
    with sub.pull(handler):
        handler.until(6)
    assert [each[0] for each in handler.came] == [b"first"] * 5 + [b"second"]
    assert [each[3] for each in handler.came] == [1, 2, 3, 4, 5, 1]
    (buried,) = dead_subscription.receive(1, timeout=PATIENCE)
    assert buried.data == b"first"
    buried.ack()


def test_a_stream_that_begins_later_keeps_to_what_is_finished(ps: PubSub, topic: Topic) -> None:
    """The message that another message follows may be finished, unfinished, or wait in a retry topic at the start."""
    sub = ps.create_subscription(
        "billing", topic, message_ordering=True, retry=RetryPolicy(min_backoff=0.2, max_backoff=0.2)
    )
    publish(topic, b"done", 2, key="a")
    publish(topic, b"fails", 2, key="b")
    first = Handler({b"fails": Message.nack})
    with sub.pull(first) as stream:
        first.until(2)
        until(lambda: stream.stats.acked == 1)
    for key in "ab":
        publish(topic, b"next-" + key.encode(), 9, key=key)
    second = Handler()
    with sub.pull(second):
        second.until(3)
    assert sorted(second.data) == [b"fails", b"next-a", b"next-b"]
    assert second.data.index(b"fails") < second.data.index(b"next-b")


def test_exactly_once_acks_hold_in_every_lane(
    ps: PubSub, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    sub = ps.create_subscription("billing", topic, exactly_once=True, message_ordering=True)
    wanted = [(number % 10, number % 3 > 0) for number in range(40)]
    for number, (priority, durable) in enumerate(wanted):
        publish(topic, b"%d" % number, priority, key=f"k{number % 5}", durable=durable)
    answers: list[bool] = []

    def ack(message: Message) -> None:
        message.ack_with_response().result(PATIENCE)
        answers.append(True)

    handler = Handler({b"%d" % number: ack for number in range(40)})
    with sub.pull(handler, flow=FlowControl(max_messages=7)):
        until(lambda: len(answers) == 40)
        assert sub.state().lag == 0, "each answer came after the ack was stored"
    assert "goes though" not in caplog.text, "what is finished makes no ring"
    assert sorted(handler.data) == sorted(b"%d" % number for number in range(40))
    for key in range(5):
        numbers = [int(data) for data in handler.data if int(data) % 5 == key]
        assert numbers == sorted(numbers)


def test_a_dead_letter_is_replayed_to_the_lane_that_it_came_from(ps: PubSub, topic: Topic) -> None:
    ps.create_topic("dead", partitions=1)
    sub = ps.create_subscription(
        "billing",
        topic,
        message_ordering=True,
        retry=RetryPolicy(min_backoff=0.05, max_backoff=0.05),
        dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
    )
    publish(topic, b"high", 8)
    publish(topic, b"default", 4)
    fails = Handler({b"high": Message.nack, b"default": Message.nack})
    with sub.pull(fails) as stream:
        until(lambda: stream.stats.dead_lettered == 2)
    shown = {each.data: (each.topic, each.problem) for each in sub.dead_letters()}
    assert shown == {b"high": ("jobs.lane.p8", None), b"default": ("jobs", None)}
    assert sub.replay_dead_letters().count == 2
    handler = Handler()
    with sub.pull(handler):
        handler.until(2)
    assert sorted(handler.came) == [(b"default", 4, True, 1), (b"high", 8, True, 1)]


def test_an_earlier_message_of_its_key_goes_with_the_priority_of_the_one_that_waits(
    ps: PubSub, topic: Topic
) -> None:
    """Behind all of that priority, before all lower ones; also a message that has waited for another lane itself."""
    sub = ps.create_subscription("billing", topic, message_ordering=True, strict=True)
    goes_on = threading.Event()
    handler = Handler({b"running": held(goes_on)})
    with sub.pull(handler, max_workers=1) as stream:
        publish(topic, b"running", 5, key="r")
        handler.until(1)
        for number in range(20):
            publish(topic, b"backlog", 1, key=f"low-{number}")
            publish(topic, b"middle", 5, key=f"middle-{number}")
        publish(topic, b"first", 1)
        publish(topic, b"second", 2)
        publish(topic, b"third", 9)
        publish(topic, b"urgent", 9, key="u")
        until(lambda: stream.stats.received == 45)
        goes_on.set()
        handler.until(45)
    assert handler.data[1:5] == [b"urgent", b"first", b"second", b"third"]
    assert handler.data[5:] == [b"middle"] * 20 + [b"backlog"] * 20
