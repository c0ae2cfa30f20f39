"""A stream of a topic with lanes: everything arrives once, from all lanes, also from later lanes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from kafka_pubsub import Message, PubSub
from tests.support import until


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with PubSub.in_memory() as ps:
        ps.create_topic("jobs", partitions=2, priorities=10, transient=True)
        yield ps


def test_all_lanes_arrive_and_a_nacked_message_comes_again_from_its_lane(ps: PubSub) -> None:
    topic = ps.topic("jobs")
    topic.publish(b"makes a lane", priority=6).result(5)
    sub = ps.create_subscription("billing", "jobs", message_ordering=True)
    wanted = [b"%d" % number for number in range(60)]
    for number, body in enumerate(wanted):
        topic.publish(
            body, priority=number % 10, durable=number % 3 > 0, ordering_key=f"k{number % 7}"
        ).result(5)
    nacked: list[tuple[str, int, int]] = []
    seen: Counter[bytes] = Counter()

    def handle(message: Message) -> None:
        if message.delivery_attempt == 1 and message.data in (b"6", b"9", b"44"):
            nacked.append((message.topic, message.partition, message.offset))
            message.nack()
            return
        if message.delivery_attempt == 2:
            nacked.remove((message.topic, message.partition, message.offset))
        seen[message.data] += 1
        message.ack()

    with sub.pull(handle) as stream:
        until(lambda: len(seen) == len(wanted))
        until(lambda: stream.stats.acked == len(wanted))
    assert seen == Counter(wanted), "each once, and nothing from before the subscription"
    assert not nacked


def test_a_lane_that_comes_while_a_stream_runs_is_read_from_its_beginning(
    ps: PubSub, caplog: pytest.LogCaptureFixture
) -> None:
    topic = ps.topic("jobs")
    sub = ps.create_subscription("billing", "jobs")
    seen: Counter[bytes] = Counter()
    runs, goes_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.data == b"slow":
            runs.set()
            assert goes_on.wait(20)
        seen[message.data] += 1
        message.ack()

    with sub.pull(handle) as stream:
        topic.publish(b"slow").result(5)
        assert runs.wait(20)
        wanted = [b"%d" % number for number in range(10)]
        for body in wanted:
            topic.publish(body, priority=9).result(5)
        until(lambda: set(seen) == set(wanted))
        goes_on.set()
        until(lambda: len(seen) == len(wanted) + 1)
        until(lambda: stream.stats.acked == len(wanted) + 1)
        assert stream.stats.stale == 0, "a callback that ran meanwhile goes on counting"
    assert set(seen.values()) == {1}
    assert caplog.messages == [], "a new lane is no reason for a warning"


def test_positions_of_lanes_are_kept_between_streams(ps: PubSub) -> None:
    topic = ps.topic("jobs")
    sub = ps.create_subscription("billing", "jobs")
    seen: list[bytes] = []

    def handle(message: Message) -> None:
        seen.append(message.data)
        message.ack()

    for number in range(3):
        topic.publish(b"%d" % number, priority=8).result(5)
        with sub.pull(handle):
            until(lambda number=number: len(seen) == number + 1)  # type: ignore[misc]
    assert seen == [b"0", b"1", b"2"]
