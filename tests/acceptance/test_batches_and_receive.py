"""Batch callbacks and synchronous pull on a real Kafka."""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub import DeadLetterPolicy, InvalidArgument, Message, PubSub, RetryPolicy
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

SOON = RetryPolicy(min_backoff=0, max_backoff=0)


class Batches:
    """A batch callback that notes its messages, and acks all."""

    def __init__(self) -> None:
        self.got: list[list[tuple[str | None, bytes]]] = []
        self._lock = threading.Lock()

    def note(self, messages: list[Message]) -> None:
        with self._lock:
            self.got.append([(message.ordering_key, message.data) for message in messages])

    def ack(self, messages: list[Message]) -> None:
        self.note(messages)
        for message in messages:
            message.ack()

    @property
    def total(self) -> int:
        return sum(map(len, self.got))


def test_a_batch_holds_distinct_keys_or_one_keys_run(room: Room) -> None:
    topic, subscription = room.pair()
    for number in range(100):
        for key in range(10):
            topic.publish(b"%d" % number, ordering_key=f"key-{key}")
    topic.flush(PATIENCE)
    batches = Batches()
    with subscription.pull_batch(batches.ack, max_messages=50):
        until(lambda: batches.total == 1000)
    for batch in batches.got:
        keys = [key for key, _ in batch]
        assert len(batch) <= 50
        assert len(set(keys)) in (1, len(keys)), keys
    for key in range(10):
        bodies = [body for batch in batches.got for each, body in batch if each == f"key-{key}"]
        assert bodies == [b"%d" % number for number in range(100)]


def test_one_key_comes_in_runs(room: Room) -> None:
    topic, subscription = room.pair()
    all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(100))
    batches = Batches()
    with subscription.pull_batch(batches.ack, max_messages=25):
        until(lambda: batches.total == 100)
    assert max(map(len, batches.got)) > 1
    assert [body for batch in batches.got for _, body in batch] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("how", ["nack", "raise"])
def test_a_nack_inside_a_run_redelivers_from_there_on(room: Room, how: str) -> None:
    topic, subscription = room.pair(retry=SOON)
    all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(10))
    batches = Batches()
    failed: list[Message] = []

    def handle(messages: list[Message]) -> None:
        batches.note(messages)
        for message in messages:
            if message.data == b"4" and message.delivery_attempt == 1:
                failed.append(message)
                if how == "raise":
                    raise ValueError("not this time")
                message.nack()
            elif not failed or message.delivery_attempt > 1 or failed[0] not in messages:
                message.ack()

    with subscription.pull_batch(handle, max_messages=10) as stream:
        until(lambda: stream.stats.acked == 10)
    bodies = [body for batch in batches.got for _, body in batch]
    # Messages behind the failed message come again, in order; messages that were acked before it don't.
    again = bodies.index(b"4", bodies.index(b"4") + 1)
    assert bodies[again:] == [b"%d" % number for number in range(4, 10)]
    assert bodies[: bodies.index(b"4")] == [b"%d" % number for number in range(4)]
    assert stream.stats.stale == 0


def test_an_ack_inside_a_run_counts_for_those_before_it(room: Room) -> None:
    topic, subscription = room.pair()
    all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(10))
    with subscription.pull_batch(lambda messages: messages[-1].ack(), max_messages=10) as stream:
        until(lambda: stream.stats.acked == 10)
    assert stream.stats.redelivered == 0


def test_receive_gives_one_message_of_a_key_at_a_time(room: Room) -> None:
    topic, subscription = room.pair()
    all_stored(topic.publish(b"%d" % number, ordering_key=key) for number in range(3) for key in ("a", "b"))
    for number in range(3):
        got: list[Message] = []
        while len(got) < 2:
            got += subscription.receive(10, timeout=PATIENCE)
        assert sorted((each.ordering_key, each.data) for each in got) == [
            ("a", b"%d" % number),
            ("b", b"%d" % number),
        ]
        subscription.acknowledge([message.ack_id for message in got])
    until(lambda: subscription.state().lag == 0)


def test_receive_returns_nothing_after_its_timeout(room: Room) -> None:
    _, subscription = room.pair()
    assert subscription.receive(10, timeout=0) == []
    assert subscription.receive(10, timeout=0.2) == []


def test_pull_gets_every_message_soon_after_the_last_receive(room: Room, log: Deliveries) -> None:
    """Both are members of the group; `receive` gives its partitions up."""
    topic, subscription = room.pair()
    assert subscription.receive(10, timeout=2) == []
    with subscription.pull(log.ack) as stream:
        all_stored(topic.publish(b"%d" % at, ordering_key=f"key-{at}") for at in range(100))
        log.wait_for_distinct(100)
        assert len(stream.stats.partitions) == 4
    assert len(log.all) == 100


def test_the_end_of_a_with_block_gives_up_what_receive_holds(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair()
    topic.publish(b"x", ordering_key="key").result(PATIENCE)
    with subscription:
        assert len(subscription.receive(10, timeout=PATIENCE)) == 1
    with subscription.pull(log.ack):
        log.wait_for(1)
    assert log.bodies == [b"x"]


def test_looking_at_a_message_counts_no_attempt(kafka: RunningKafka, room: Room) -> None:
    """Each look is a process of its own, closed in good order, that acks nothing; the policy allows five attempts."""
    topic = room.topic(partitions=1)
    policy = DeadLetterPolicy(topic=room.topic(partitions=1).name, max_attempts=5)
    subscription = room.subscription(topic, dead_letter=policy)
    topic.publish(b"x", ordering_key="key").result(PATIENCE)
    for _ in range(8):
        with PubSub(kafka.bootstrap) as ps:
            (message,) = ps.subscription(subscription.name).receive(1, timeout=PATIENCE)
            assert message.delivery_attempt == 1
    assert list(subscription.dead_letters()) == []
    assert subscription.keys() == []


def test_modify_ack_deadline_extends_and_nacks(room: Room, log: Deliveries) -> None:
    """`short` comes again by its own deadline of a second, `long` doesn't meanwhile; 0 is over at once."""
    topic, subscription = room.pair(ack_deadline=1, retry=SOON)
    topic.publish(b"long", ordering_key="long").result(PATIENCE)
    (long,) = subscription.receive(1, timeout=PATIENCE)
    subscription.modify_ack_deadline([long.ack_id], 600)
    topic.publish(b"short", ordering_key="short").result(PATIENCE)
    for attempt in (1, 2, 3):
        (short,) = subscription.receive(1, timeout=PATIENCE)
        assert (short.data, short.delivery_attempt) == (b"short", attempt)
    subscription.acknowledge([short.ack_id])
    subscription.modify_ack_deadline([long.ack_id], 0)
    (again,) = subscription.receive(1, timeout=PATIENCE)
    assert (again.data, again.delivery_attempt) == (b"long", 2)
    again.ack()
    until(lambda: subscription.state().lag == 0)


@pytest.mark.parametrize("seconds", [-1, -0.001, 601, float("nan")])
def test_deadlines_out_of_range_are_refused_and_change_nothing(room: Room, seconds: float) -> None:
    topic, subscription = room.pair()
    topic.publish(b"x", ordering_key="key").result(PATIENCE)
    (message,) = subscription.receive(1, timeout=PATIENCE)
    with pytest.raises(InvalidArgument, match="from 0 to 600"):
        subscription.modify_ack_deadline([message.ack_id], seconds)
    with pytest.raises(InvalidArgument, match="from 0 to 600"):
        message.extend(seconds)
    message.ack()
    until(lambda: subscription.state().lag == 0)
