"""What waits in each lane, by the state of a subscription and by `subscription describe`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, RetryPolicy, Topic
from tests.support import until
from tests.unit.lanes.handling import Handler


def test_a_state_has_the_lag_and_the_oldest_message_of_each_lane(ps: PubSub, topic: Topic) -> None:
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    began = datetime.now(UTC) - timedelta(seconds=1)
    for priority, durable, count in ((9, True, 2), (4, True, 3), (4, False, 1)):
        for number in range(count):
            topic.publish(b"%d" % number, priority=priority, durable=durable, ordering_key="k").result(5)
    state = sub.state()
    assert state.lag == state.lag_by_partition[0] == 6
    assert [(each.topic, each.priority, each.durable, each.lag) for each in state.lanes] == [
        ("jobs.lane.p9", 9, True, 2),
        ("jobs", 4, True, 3),
        ("jobs.lane.t4", 4, False, 1),
    ]
    for lane in state.lanes:
        assert lane.oldest is not None
        assert began <= lane.oldest <= datetime.now(UTC) + timedelta(seconds=1)
    handler = Handler()
    with sub.pull(handler):
        handler.until(6)
        until(lambda: sub.state().lag == 0)
    assert [(each.lag, each.oldest) for each in sub.state().lanes] == [(0, None)] * 3


def test_each_lane_has_its_share_of_the_backlog_and_of_the_dead_letters(ps: PubSub, topic: Topic) -> None:
    ps.create_topic("dead", partitions=1)
    sub = ps.create_subscription(
        "billing",
        topic,
        message_ordering=True,
        retry=RetryPolicy(min_backoff=0.01, max_backoff=0.01),
        dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
    )
    lanes = {b"dies": (9, True), b"waits": (4, True), b"is held": (4, False)}
    for data, (priority, durable) in lanes.items():
        for body in (data, b"good"):
            topic.publish(body, priority=priority, durable=durable, ordering_key=f"{data!r}{body!r}").result(
                5
            )
    conduct = {
        b"dies": Message.nack,
        b"waits": lambda each: each.nack(delay=600),
        b"is held": lambda each: None,
    }
    with sub.pull(Handler(conduct)):
        until(lambda: (sub.state().backlog, sub.state().dead_letters) == (2, 1))
        state = sub.state()
    assert [
        (
            each.topic,
            each.backlog,
            each.waiting_retry,
            each.blocked_keys,
            each.dead_letters,
            bool(each.oldest),
        )
        for each in state.lanes
    ] == [
        ("jobs.lane.p9", 0, 0, 0, 1, False),
        ("jobs", 1, 1, 1, 0, True),
        ("jobs.lane.t4", 1, 0, 0, 0, True),
    ]
    assert state.lanes[2].lag == 2, "Kafka's lag counts the message that was acked behind it"
    assert (state.waiting_retry, state.blocked_keys, state.oldest) == (1, 1, state.lanes[1].oldest)


def test_a_key_that_waits_in_a_lane_is_named_with_its_partition(ps: PubSub, topic: Topic) -> None:
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    topic.publish(b"x", priority=9, ordering_key="k").result(5)
    (message,) = sub.receive(1, timeout=5)
    (blocked,) = sub.state().blocked
    assert (blocked.key, blocked.partition, blocked.topic) == (b"k", 0, "jobs.lane.p9")
    message.nack()
    (again,) = sub.receive(1, timeout=5)
    again.ack()


def test_a_topic_without_lanes_has_none(ps: PubSub) -> None:
    plain = ps.create_topic("plain", partitions=1)
    assert ps.create_subscription("billing", plain).state().lanes == ()
