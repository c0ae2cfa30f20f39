"""Durable and transient messages on one topic, case by case, on a real Kafka.

The naive broker keeps two buckets, and goes over to the other when the present bucket is empty: so the broker loses the
order between the classes, ignores priorities across them, and starves one class while publishers keep up. Each case
here runs with a prefetch of a message and with a large one, and with more messages than any buffer holds at once.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import pytest

from kafka_pubsub import FlowControl, Message, Subscription, Topic
from tests.acceptance.support import PATIENCE, Room, all_stored, until

PREFETCHES = [pytest.param(1, marks=pytest.mark.slow), 1000]
#: Messages of a case: the fetch window of a partition is 2000.
MANY = 5000


class Kind(NamedTuple):
    """The bodies that are published."""

    priority: int
    durable: bool


PERSISTENT, TRANSIENT = Kind(4, True), Kind(4, False)


class Taken:
    """The messages that came, in the order of the callbacks; a callback at a time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.numbers: list[int] = []
        self.kinds: list[Kind] = []
        self._seconds = seconds
        self._alone = threading.Lock()

    def __call__(self, message: Message) -> None:
        assert self._alone.acquire(blocking=False), "two callbacks at once"
        self.numbers.append(int(message.data))
        self.kinds.append(Kind(message.priority, message.durable))
        if self._seconds:
            time.sleep(self._seconds)
        self._alone.release()
        message.ack()


@pytest.fixture(params=PREFETCHES)
def prefetch(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer than the second that transient messages and leaders have; order is tested here."""
    for place in ("kafka_pubsub.log.kafka.transient_writer", "kafka_pubsub.lanes.lane_sender"):
        monkeypatch.setattr(f"{place}.ANSWER_S", PATIENCE)
    monkeypatch.setattr("kafka_pubsub.lanes.ends.TIMEOUT", PATIENCE)


@pytest.fixture
def topic(room: Room) -> Topic:
    """A single partition, because the order holds in each."""
    return room.topic(partitions=1, priorities=10, transient=True)


def publish(topic: Topic, kinds: Iterable[Kind]) -> list[Future[str]]:
    return [
        topic.publish(str(number).encode(), priority=kind.priority, durable=kind.durable)
        for number, kind in enumerate(kinds)
    ]


def drain(sub: Subscription, count: int, prefetch: int) -> Taken:
    taken = Taken()
    with sub.pull(taken, flow=FlowControl(max_messages=prefetch), max_workers=1) as stream:
        until(lambda: len(taken.numbers) >= count)
        until(lambda: stream.stats.acked >= count)
    return taken


def in_turn(kinds: Sequence[Kind]) -> list[int]:
    """The numbers in the order in which they must come: by priority, then as they were published."""
    return [number for number, _ in sorted(enumerate(kinds), key=lambda each: -each[1].priority)]


def test_alternating_classes_come_in_the_order_in_which_they_were_published(
    room: Room, topic: Topic, prefetch: int
) -> None:
    sub = room.subscription(topic)
    # A change of class costs a round trip, so only the first thousand alternate with every third message.
    kinds = [
        PERSISTENT if (number if number < 1000 else number // 20) % 3 else TRANSIENT for number in range(MANY)
    ]
    all_stored(publish(topic, kinds))
    taken = drain(sub, MANY, prefetch)
    assert taken.numbers == list(range(MANY))
    assert taken.kinds == kinds


def test_alternating_classes_come_in_order_while_they_are_published(
    room: Room, topic: Topic, prefetch: int
) -> None:
    all_stored(publish(topic, [TRANSIENT]))  # the stream reads a lane from the beginning once it knows it
    sub = room.subscription(topic)
    taken = Taken()
    with sub.pull(taken, flow=FlowControl(max_messages=prefetch), max_workers=1):
        kinds = [PERSISTENT if number // 7 % 2 else TRANSIENT for number in range(MANY)]
        all_stored(publish(topic, kinds))
        until(lambda: len(taken.numbers) >= MANY)
    assert taken.numbers == list(range(MANY))


@pytest.mark.parametrize("first", [PERSISTENT, TRANSIENT], ids=["persistent-first", "transient-first"])
def test_a_burst_of_one_class_comes_before_a_later_burst_of_the_other(
    room: Room, topic: Topic, prefetch: int, first: Kind
) -> None:
    sub = room.subscription(topic)
    second = TRANSIENT if first is PERSISTENT else PERSISTENT
    kinds = [first] * MANY + [second] * MANY
    all_stored(publish(topic, kinds))
    taken = drain(sub, 2 * MANY, prefetch)
    assert taken.numbers == list(range(2 * MANY))


def test_what_is_finished_out_of_turn_leaves_its_own_lane(room: Room, topic: Topic, prefetch: int) -> None:
    """`remove` and `reset` of the naive broker: removed messages don't come back, the rest comes again in its order."""
    sub = room.subscription(topic)
    all_stored(publish(topic, [PERSISTENT if number % 2 else TRANSIENT for number in range(10)]))
    gone, seen, open_leases = {1, 4, 7}, set[int](), threading.Event()

    def take_some_away(message: Message) -> None:
        number = int(message.data)
        seen.add(number)
        if number in gone:
            message.ack()
        else:
            open_leases.wait(PATIENCE)

    with sub.pull(take_some_away, max_workers=10) as stream:
        until(lambda: len(seen) == 10 and stream.stats.acked == len(gone))
        stream.cancel()
        open_leases.set()
    taken = drain(sub, 10 - len(gone), prefetch)
    assert taken.numbers == [number for number in range(10) if number not in gone]


def test_priority_counts_across_both_classes(room: Room, topic: Topic, prefetch: int) -> None:
    """A naive queue let a transient message of priority 9 wait for all durable messages of priority 4."""
    sub = room.subscription(topic, strict=True)
    kinds = [Kind((1, 4, 9)[number // 50 % 3], number // 10 % 2 == 0) for number in range(MANY)]
    all_stored(publish(topic, kinds))
    taken = drain(sub, MANY, prefetch)
    assert taken.numbers == in_turn(kinds)


def test_a_late_message_of_a_high_priority_overtakes_what_waits(
    room: Room, topic: Topic, prefetch: int
) -> None:
    """Also messages that this client has buffered: the message is published when the stream has read all others."""
    sub = room.subscription(topic)
    all_stored(publish(topic, [Kind(9, False)]))  # makes the lane
    assert drain(sub, 1, 1).numbers == [0]
    kinds = [PERSISTENT] * 1000
    all_stored(publish(topic, kinds))
    taken = Taken(seconds=0.005)
    with sub.pull(taken, flow=FlowControl(max_messages=prefetch), max_workers=1) as stream:
        until(lambda: len(taken.numbers) >= 20 and stream.stats.received == 1000)
        topic.publish(b"-1", priority=9, durable=False).result(PATIENCE)
        before = len(taken.numbers)
        until(lambda: -1 in taken.numbers)
        assert taken.numbers.index(-1) - before <= 25


@pytest.mark.slow
def test_neither_class_starves_while_publishers_keep_up(room: Room, topic: Topic, prefetch: int) -> None:
    """The seed's cursor never leaves the bucket that is never empty."""
    all_stored(publish(topic, [TRANSIENT]))
    sub = room.subscription(topic)
    taken, stop = Taken(seconds=0.001), threading.Event()
    sent: list[Future[str]] = []

    def flood() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            kind = TRANSIENT if number % 100 == 99 else PERSISTENT
            sent.append(topic.publish(str(number).encode(), priority=4, durable=kind.durable))
            if len(sent) - len(taken.numbers) > 3000:
                time.sleep(0.005)

    with sub.pull(taken, flow=FlowControl(max_messages=prefetch), max_workers=1):
        publisher = threading.Thread(target=flood)
        publisher.start()
        until(lambda: taken.kinds.count(TRANSIENT) >= 30)
        stop.set()
        publisher.join()
        until(lambda: len(taken.numbers) == len(sent))
    assert taken.numbers == list(range(len(sent)))


def test_a_low_priority_is_served_while_higher_ones_never_end(
    room: Room, topic: Topic, prefetch: int
) -> None:
    bound = 1.0
    sub = room.subscription(topic, ageing=bound)
    low = [Kind(0, True)] * 3
    high = Kind(9, True)
    all_stored(publish(topic, [*low, *[high] * 100]))
    taken, stop = Taken(seconds=0.002), threading.Event()
    came: dict[int, float] = {}

    def handle(message: Message) -> None:
        came.setdefault(int(message.data), time.monotonic())
        taken(message)

    def flood() -> None:
        for number in itertools.count(1000):
            if stop.is_set():
                return
            topic.publish(str(number).encode(), priority=9)
            if number - 1000 - len(taken.numbers) > 500:
                time.sleep(0.01)

    with sub.pull(handle, flow=FlowControl(max_messages=prefetch), max_workers=1):
        publisher = threading.Thread(target=flood)
        publisher.start()
        until(lambda: {0, 1, 2} <= came.keys())
        stop.set()
        publisher.join()
    began = min(came.values())
    waits = [came[number] - began for number in range(3)]
    assert waits[0] >= 0.9 * bound, "it goes out of turn only when it has aged"
    assert waits == sorted(waits)
    assert waits[-1] <= bound + 2.0, waits


def test_no_message_is_lost_or_doubled_between_streams(room: Room, topic: Topic, prefetch: int) -> None:
    """Each stream goes on where the stream before it stopped, in every lane."""
    sub = room.subscription(topic)
    kinds = [Kind(number % 10, number % 4 > 0) for number in range(2000)]
    all_stored(publish(topic, kinds))
    numbers: list[int] = []
    while len(numbers) < len(kinds):
        taken = Taken()
        wanted = min(500, len(kinds) - len(numbers))
        with sub.pull(taken, flow=FlowControl(max_messages=prefetch), max_workers=1):
            until(lambda taken=taken, wanted=wanted: len(taken.numbers) >= wanted)  # type: ignore[misc]
        numbers += taken.numbers
    assert sorted(numbers) == list(range(len(kinds)))
    assert sub.state().lag == 0
