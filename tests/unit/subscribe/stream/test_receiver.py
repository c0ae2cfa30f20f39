"""Synchronous pull keeps its membership while it is used, and not for longer: over memory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from kafka_pubsub import Message, PubSub, StaleAck, Subscription
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.subscribe.stream import receiver
from kafka_pubsub.subscribe.takeover.listener import AssignmentListener
from kafka_pubsub.subscribe.workers.pull_queue import PullQueue
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

MESSAGES = 40


class Group:
    """A topic of four partitions with a subscription, and its consumer group."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.ps = PubSub.in_memory(self.backend)
        self.topic = self.ps.create_topic("orders", partitions=4)
        self.sub: Subscription = self.ps.create_subscription("billing", self.topic, message_ordering=True)

    @property
    def members(self) -> int:
        return self.backend.admin.group_members("billing")

    def another(self) -> Subscription:
        """The subscription in another `PubSub`."""
        return PubSub.in_memory(MemoryBackend(cluster=self.backend.cluster)).subscription("billing")

    def publish(self, count: int = MESSAGES) -> None:
        for at in range(count):
            self.topic.publish(b"%d" % at, ordering_key=f"k{at}").result(PATIENCE)


@pytest.fixture
def group() -> Iterator[Group]:
    group = Group()
    with group.ps:
        yield group


class Clock:
    """The clock by which a membership is idle; stands still until a test moves it on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_idle_time(self) -> None:
        self.now += receiver.IDLE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(receiver, "PullQueue", partial(PullQueue, clock=clock))
    return clock


class Ledger:
    """A callback that acks, and notes what came."""

    def __init__(self) -> None:
        self.came: set[bytes] = set()

    def __call__(self, message: Message) -> None:
        self.came.add(message.data)
        message.ack()

    @property
    def all(self) -> bool:
        return len(self.came) == MESSAGES


def receive_one(sub: Subscription) -> Message:
    (message,) = sub.receive(1, PATIENCE)
    return message


def test_pull_gets_all_partitions_soon_after_the_last_receive(group: Group, clock: Clock) -> None:
    assert group.sub.receive(10, timeout=1) == []
    ledger = Ledger()
    with group.sub.pull(ledger) as stream:
        until(lambda: group.members == 2)
        clock.pass_idle_time()
        group.publish()
        until(lambda: ledger.all)
        assert stream.stats.partitions == (0, 1, 2, 3)


def test_an_ack_after_long_work_counts_and_then_the_membership_ends(group: Group, clock: Clock) -> None:
    group.publish(1)
    message = receive_one(group.sub)
    session = group.sub._subscriber().receiver._session
    assert session is not None
    clock.now += 600  # the work
    until(lambda: session.pull_queue._used == clock.now, "a look at whether it is idle")
    assert group.members == 1
    message.ack_with_response().result(PATIENCE)
    clock.pass_idle_time()
    until(lambda: group.members == 0)
    assert group.sub.state().lag == 0


def test_a_call_after_the_membership_has_ended_joins_again(group: Group, clock: Clock) -> None:
    for at in range(3):
        group.topic.publish(b"%d" % at).result(PATIENCE)
        message = receive_one(group.sub)
        assert message.data == b"%d" % at
        message.ack()
        until(lambda: not group.sub.state().in_flight, "the end of the lease")
        clock.pass_idle_time()
        until(lambda: group.members == 0)


def test_calls_that_come_while_a_membership_ends_miss_nothing(group: Group, clock: Clock) -> None:
    """Whenever no call runs the membership is idle for long enough, so calls meet the ends of memberships."""
    done = threading.Event()

    def run_ahead() -> None:
        while not done.wait(0.001):
            clock.pass_idle_time()

    racing = threading.Thread(target=run_ahead)
    racing.start()
    memberships: set[object] = set()
    end = time.monotonic() + PATIENCE
    try:
        while len(memberships) < 8 and time.monotonic() < end:
            group.topic.publish(b"x").result(PATIENCE)
            receive_one(group.sub).ack()
            memberships.add(group.sub._subscriber().receiver._session)
    finally:
        done.set()
        racing.join(PATIENCE)
    assert len(memberships) >= 8
    until(lambda: group.sub.state().lag == 0)


def test_a_with_block_gives_the_partitions_up_at_its_end(group: Group) -> None:
    group.publish(1)
    with group.ps.subscription("billing") as sub:
        message = receive_one(sub)
        assert group.members == 1
    assert group.members == 0
    assert isinstance(message.ack_with_response().exception(PATIENCE), StaleAck)
    again = receive_one(group.another())
    assert (again.data, again.delivery_attempt) == (b"0", 1), "a look counts no attempt"


def test_blocks_within_each_other_share_and_the_last_one_gives_up(group: Group) -> None:
    group.publish(1)
    with group.ps.subscription("billing") as outer:
        with group.ps.subscription("billing") as inner:
            message = receive_one(inner)
        message.ack_with_response().result(PATIENCE)
        assert outer.receive(1, timeout=0) == []
        assert group.members == 1
    assert group.members == 0


def test_close_gives_up_at_once_and_streams_go_on(group: Group) -> None:
    ledger = Ledger()
    with group.sub.pull(ledger):
        group.sub.receive(1, timeout=0.1)
        until(lambda: group.members == 2)
        group.sub.close()
        group.sub.close()
        group.publish()
        until(lambda: ledger.all)
        assert group.members == 1
    group.ps.close()
    group.sub.close()


def test_a_block_whose_pubsub_is_closed_ends_quietly(group: Group) -> None:
    with group.sub as sub:
        sub.receive(1, timeout=0)
        group.ps.close()


@pytest.mark.parametrize("other", ["the same PubSub", "another PubSub"])
def test_two_that_receive_share_and_nothing_is_left(group: Group, other: str) -> None:
    subs = [group.sub, group.sub if other == "the same PubSub" else group.another()]
    ledger, stop = Ledger(), threading.Event()

    def receive(sub: Subscription) -> None:
        while not stop.is_set():
            for message in sub.receive(3, timeout=0.2):
                ledger(message)

    threads = [threading.Thread(target=receive, args=(sub,)) for sub in subs]
    for thread in threads:
        thread.start()
    group.publish()
    until(lambda: ledger.all)
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)


def test_two_that_pull_share_the_partitions(group: Group) -> None:
    ledger = Ledger()
    with group.sub.pull(ledger) as one, group.another().pull(ledger) as two:
        until(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 2)
        group.publish()
        until(lambda: ledger.all)


def test_a_poll_that_is_too_short_to_join_is_warned(
    group: Group, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a program that polls now and then would never receive anything, and never learn why."""
    caplog.set_level(logging.WARNING, "kafka_pubsub.subscriber")

    def warned() -> int:
        return sum("longer timeout" in each.getMessage() for each in caplog.records)

    with monkeypatch.context() as slow:
        slow.setattr(AssignmentListener, "assigned", lambda self, partitions: {})  # the group never answers
        assert group.sub.receive(1, timeout=0) == []
        clock.pass_idle_time()
        until(warned)
        until(lambda: group.members == 0)
    assert group.sub.receive(1, timeout=1) == []
    clock.pass_idle_time()
    until(lambda: group.members == 0)
    assert warned() == 1
