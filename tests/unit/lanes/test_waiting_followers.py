"""What a key's message waits for in other lanes ends by itself: what is lost, copied or made again blocks no key."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_pubsub import Message, PubSub, Topic
from kafka_pubsub.config import Batching
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import Name, Sent, after_header, read_lane_headers, sequence_header
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.model import Header, TopicPartition
from tests.support import until
from tests.unit.lanes.handling import Handler

PATIENCE = 30.0


def write(
    backend: MemoryBackend, topic: str, data: bytes, headers: Sequence[Header], key: bytes | None = b"k"
) -> None:
    writer = backend.writer(Batching(), 10**6)
    writer.append(topic, data, key, list(headers), lambda *_: None, 0)
    writer.flush(PATIENCE)


@pytest.mark.parametrize("later", [0, 5])
def test_a_lost_transient_message_blocks_no_key(
    ps: PubSub, topic: Topic, backend: MemoryBackend, later: int
) -> None:
    """Its offset is given again to a message that comes after its follower, or to none."""
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    wanted = [b"first", b"durable"]
    topic.publish(b"first", ordering_key="k").result(PATIENCE)
    topic.publish(b"lost", ordering_key="k", durable=False).result(PATIENCE)
    backend.cluster.lose_tail("jobs.lane.t4", 0, 0)
    topic.publish(b"durable", ordering_key="k").result(PATIENCE)
    if later:
        topic.publish(b"transient", ordering_key="k", durable=False).result(PATIENCE)
        wanted.append(b"transient")
    for number in range(later):
        topic.publish(b"%d" % number, ordering_key="k").result(PATIENCE)
        wanted.append(b"%d" % number)
    handler = Handler()
    with sub.pull(handler):
        handler.until(len(wanted))
    assert handler.data == wanted


@pytest.mark.parametrize("shift", [0, 3])
def test_keys_of_a_copied_topic_keep_their_order(shift: int) -> None:
    """Record by record, into a topic whose logs have other ids, and begin at another offset."""
    home, other = MemoryBackend(), MemoryBackend()
    with PubSub.in_memory(home) as source, PubSub.in_memory(other) as target:
        topic = source.create_topic("jobs", partitions=1, priorities=2)
        for number in range(40):
            topic.publish(b"%d" % number, ordering_key=f"k{number % 2}", priority=number // 3 % 2)
        topic.flush(PATIENCE)
        target.create_topic("shifts", partitions=1)  # so that no id is the same
        copy = target.create_topic("jobs", partitions=1, priorities=2)
        copy.publish(b"makes the lane", priority=1).result(PATIENCE)
        sub = target.create_subscription("billing", "jobs", message_ordering=True)
        logs = {each: home.cluster.log(TopicPartition(each, 0)).read(shift, 1000) for each in topic.lanes}
        copied = sum(map(len, logs.values()))
        for name, log in logs.items():
            for record in log:
                write(other, name, record.value() or b"", record.headers() or (), record.key())
        handler = Handler()
        with sub.pull(handler):
            handler.until(copied)
    for key in range(2):
        mine = [int(data) for data in handler.data if int(data) % 2 == key]
        assert mine == sorted(mine)


def test_a_lane_that_does_not_exist_is_not_waited_for(
    ps: PubSub, topic: Topic, backend: MemoryBackend
) -> None:
    """A copy without some lane."""
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    topic.publish(b"makes the lane", priority=9).result(PATIENCE)
    headers = [sequence_header(Sent("p", 8)), after_header({Lane(7, True): Name(7, 3, "elsewhere")})]
    write(backend, "jobs", b"after", headers)
    handler = Handler()
    with sub.pull(handler) as stream:
        handler.until(1)
        until(lambda: stream.stats.received == 2)
        (blocked,) = sub.state().blocked
        assert blocked.reason == "comes after offset 3 of jobs.lane.p7, which isn't read yet"
        handler.until(2)


@pytest.mark.parametrize("count", [50, 1500])
def test_what_waits_for_another_lane_holds_up_no_other_key(ps: PubSub, topic: Topic, count: int) -> None:
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    topic.publish(b"nacked", ordering_key="k", priority=0).result(PATIENCE)

    def nack(message: Message) -> None:
        message.nack(delay=3600)

    handler = Handler({b"nacked": nack})
    with sub.pull(handler) as stream:
        handler.until(1)
        topic.publish_many(
            {"data": b"waits", "priority": 9, "ordering_key": "k"} for _ in range(count)
        ).result(60)
        others = [topic.publish(b"other", ordering_key=f"other-{n}", priority=9) for n in range(20)]
        assert all(each.result(PATIENCE) for each in others)
        handler.until(21)
        until(lambda: stream.stats.received == count + 21)
        assert b"waits" not in handler.data
        blocked = {each.topic: each.reason for each in sub.state().blocked if each.key == b"k"}
        assert blocked["jobs.lane.p9"] == "comes after offset 0 of jobs.lane.p0, which isn't finished"
        assert blocked["jobs.lane.p0"].startswith("waiting: nacked with a delay")
        until(lambda: sum(each.lag for each in sub.state().lanes) < 200)  # most of them move


@pytest.mark.parametrize("delay", [None, 3600.0], ids=["held", "in-a-retry-topic"])
def test_any_process_sees_what_waits_in_memory_for_another_lane(
    ps: PubSub, topic: Topic, backend: MemoryBackend, delay: float | None
) -> None:
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    topic.publish(b"first", ordering_key="k", priority=0).result(PATIENCE)
    messages: list[Message] = []

    def hold(message: Message) -> None:
        messages.append(message)
        if delay is not None:
            message.nack(delay=delay)

    handler = Handler({b"first": hold})
    with sub.pull(handler) as stream, PubSub.in_memory(backend) as other:
        handler.until(1)
        waits = topic.publish(b"waits", priority=9, ordering_key="k").result(PATIENCE)
        topic.publish(b"waits too", priority=9, ordering_key="k").result(PATIENCE)
        topic.publish(b"other", priority=9, ordering_key="other").result(PATIENCE)
        handler.until(2)
        until(lambda: stream.stats.received == 4)

        def held_up() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {"jobs.lane.p0": [], "jobs.lane.p9": []}
            for each in other.subscription("billing").keys():  # noqa: SIM118
                assert each.ordering_key == "k"
                found[each.topic].append(each.reason)
            return found

        reason = "with its callback" if delay is None else "nacked with a delay"
        after = "comes after offset 0 of jobs.lane.p0, which isn't finished"
        until(lambda: held_up() == {"jobs.lane.p0": [reason], "jobs.lane.p9": [after]})
        (state,) = (each for each in sub.keys() if each.topic == "jobs.lane.p9")  # noqa: SIM118
        assert (state.state, state.message_id, state.offset) == ("waiting", waits, 0)
        if delay is None:
            messages[0].ack()
            handler.until(4)
            until(lambda: not sub.keys())


def test_a_lost_retry_topic_is_no_reason_to_fail(ps: PubSub, topic: Topic, backend: MemoryBackend) -> None:
    sub = ps.create_subscription("billing", topic, message_ordering=True)
    topic.publish(b"first", ordering_key="k").result(PATIENCE)
    topic.publish(b"waits", priority=9, ordering_key="k").result(PATIENCE)
    assert [each.topic for each in sub.keys()] == ["jobs.lane.p9"]  # noqa: SIM118
    backend.admin.delete_topic("jobs.lane.p9.sub.billing.retry")
    assert sub.keys() == []


def test_a_later_transient_message_is_named_by_its_own_number(
    ps: PubSub, topic: Topic, backend: MemoryBackend
) -> None:
    topic.publish(b"lost", ordering_key="k", durable=False).result(PATIENCE)
    backend.cluster.lose_tail("jobs.lane.t4", 0, 0)
    topic.publish(b"again", ordering_key="k", durable=False).result(PATIENCE)
    topic.publish(b"after", ordering_key="k").result(PATIENCE)
    (record,) = backend.cluster.log(TopicPartition("jobs", 0)).read(0, 10)
    _, after = read_lane_headers(record.headers())
    assert after[Lane(4, False)].number == 2
