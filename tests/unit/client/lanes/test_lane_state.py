"""What waits in each lane, by the state of a subscription and by `subscription describe`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kafka_pubsub import PubSub, Topic
from tests.support import until
from tests.unit.client.lanes.handling import Handler


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
