"""A group whose positions the broker has forgotten goes on from its newest checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, RetryPolicy
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats.checkpoint import Log, Named
from kafka_pubsub.subscribe.partition import checkpoint_schedule as core_checkpoints
from kafka_pubsub.subscribe.retry_topic import checkpoint_reader
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import map_of, newest, stored_by
from kafka_pubsub.subscriber import Subscriber
from kafka_pubsub.subscription import Subscription
from tests.checkpoints import made, write
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

PLACE = TopicPartition("retry", 0)
IDS = ("id", "retry-id")
RETRY = "orders.sub.billing.retry"
MESSAGES = 60


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def log(backend: MemoryBackend) -> MemoryBackend:
    backend.admin.create_topic("retry", 1, None, {})
    return backend


def found(log: MemoryBackend, low: int = 0, ids: tuple[str, str] = IDS) -> Named | None:
    end = log.cluster.log(PLACE).end
    answer = newest(log.record_fetch(), {PLACE: (low, end)}, ids).get(PLACE)
    return None if answer is None else answer[0]


def test_the_newest_whole_checkpoint_of_these_topics_counts(
    log: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_reader, "_TOGETHER", 4)
    assert found(log) is None
    first = write(log.cluster, "retry", (1, 2), nonce=1)
    for _ in range(9):
        log.cluster.append("retry", 0, b"message", b"k")
    assert found(log) == first
    second = write(log.cluster, "retry", (1, 2), (3, 4), (5, 6), nonce=2, most=1)
    assert found(log) == second
    write(log.cluster, "retry", nonce=3, topic_id="deleted")
    assert found(log) == second, "the home topic was made again"
    assert found(log, ids=("id", "another")) is None, "the retry topic was made again"
    with log.cluster.change():
        log.cluster.log(PLACE).remove([second.offset + 2])
    assert found(log) == first, "a record of the second is missing"
    assert found(log, low=1) is None


def test_what_a_checkpoint_says_is_reported_like_a_commit() -> None:
    told = Log("id", 5, ((8, 9),))
    commit = stored_by(Named(3, 7 << 20 | 2), told, 6)
    said = map_of(commit)
    assert said is not None
    assert (commit.offset, said.runs, said.checkpoint, said.more, said.nonce) == (
        6,
        (),
        (3, 7 << 20 | 2),
        True,
        7,
    )
    without = map_of(stored_by(Named(3, 1), made().main, 0))
    assert without is not None
    assert not without.more


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as ps:
        yield ps


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    ps.create_topic("orders", partitions=1, message_ordering=True)
    ps.create_topic("graves", partitions=1)
    return ps.create_subscription(
        "billing",
        topic="orders",
        message_ordering=True,
        retry=RetryPolicy(min_backoff=0.01, max_backoff=0.02),
        dead_letter=DeadLetterPolicy(topic="graves", max_attempts=5),
    )


class Handler:
    """Key `bad` fails always, `slow` stays with its callback until the test lets go."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.kept: list[Message] = []

    def __call__(self, message: Message) -> None:
        self.seen.append(message.offset)
        if message.ordering_key == "bad":
            message.nack()
        elif message.ordering_key == "slow":
            self.kept.append(message)
        else:
            message.ack()


def publish(ps: PubSub) -> None:
    topic = ps.topic("orders")
    topic.publish(b"x", ordering_key="slow").result(PATIENCE)
    topic.publish(b"x", ordering_key="bad").result(PATIENCE)
    for number in range(MESSAGES):
        topic.publish(b"x", ordering_key=f"k{number % 7}").result(PATIENCE)


def dead_letters(backend: MemoryBackend) -> int:
    return len(backend.cluster.log(TopicPartition("graves", 0))._records)


def checkpoint_reports(backend: MemoryBackend, count: int) -> bool:
    """Whether the commits count from a checkpoint that tells of so many acks above the position."""
    with backend.cluster.changed:
        stored = backend.cluster.group("billing").offsets.get(
            TopicPartition("orders", 0), Committed(None, "")
        )
    said = map_of(stored)
    if said is None or said.checkpoint is None:
        return False
    whole = checkpoint_reader.checkpoint_of(
        backend.record_fetch(), TopicPartition(RETRY, 0), said.checkpoint, 10**6
    )
    return whole is not None and sum(end - start for start, end in whole.main.runs) >= count


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_nothing_that_a_checkpoint_holds_is_delivered_again_and_no_dead_letter_is_doubled(
    ps: PubSub,
    sub: Subscription,
    backend: MemoryBackend,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    closed: bool,
) -> None:
    monkeypatch.setattr(core_checkpoints, "EVERY", 0.3)
    if not closed:  # nothing is copied into the catalog, nor said at the end
        monkeypatch.setattr(Subscriber, "_copy_positions", lambda self, stream_runner: None)
    first = Handler()
    with sub.pull(first):
        publish(ps)
        until(lambda: dead_letters(backend) == 1 and checkpoint_reports(backend, MESSAGES))
        for message in first.kept if closed else ():
            message.ack()
    backend.cluster.forget_offsets("billing")
    second = Handler()
    with caplog.at_level(logging.WARNING, "kafka_pubsub.subscriber"), sub.pull(second):
        ps.topic("orders").publish(b"last", ordering_key="k0").result(PATIENCE)
        until(lambda: MESSAGES + 2 in second.seen)
        for message in second.kept:
            message.ack()
        until(lambda: sub.state().lag == 0)
    assert second.seen == [MESSAGES + 2] if closed else sorted(second.seen) == [0, MESSAGES + 2]
    assert dead_letters(backend) == 1
    assert any("going on from the checkpoint of 20" in each.getMessage() for each in caplog.records)


def test_an_operators_reset_counts_as_it_stands(
    ps: PubSub, sub: Subscription, backend: MemoryBackend
) -> None:
    """A position without metadata isn't a forgotten position: an operator wants the messages again."""
    first = Handler()
    with sub.pull(first):
        publish(ps)
        until(lambda: dead_letters(backend) == 1 and len(set(first.seen)) == MESSAGES + 2)
        for message in first.kept:
            message.ack()
        until(lambda: sub.state().lag == 0)
    with backend.cluster.change():
        assert backend.cluster.group("billing").store(TopicPartition("orders", 0), Committed(2, "")) is None
    second = Handler()
    with sub.pull(second):
        until(lambda: len(set(second.seen)) == MESSAGES)
    assert sorted(set(second.seen)) == [*range(2, MESSAGES + 2)]
