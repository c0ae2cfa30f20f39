"""The commits of a reader: singly, on a thread that ends by itself, and nothing sent that was given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    PubSubError,
)
from kafka_pubsub.log.kafka import commit_requests
from kafka_pubsub.log.kafka.client_factory import Trouble
from kafka_pubsub.log.kafka.commit_requests import Commits
from kafka_pubsub.model import Committed, TopicPartition
from tests.support import PATIENCE, until

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Broker:
    """Takes commits, on the thread that brings them."""

    def __init__(self) -> None:
        self.stored: list[dict[int, int]] = []
        self.threads: list[threading.Thread] = []
        #: Asked before each request is stored; may wait, or raise.
        self.before: Callable[[list[KafkaPartition]], None] = lambda offsets: None
        self.member = True

    def send(self, offsets: list[KafkaPartition]) -> list[KafkaPartition]:
        self.threads.append(threading.current_thread())
        self.before(offsets)
        self.stored.append({each.partition: each.offset for each in offsets})
        return offsets

    def is_member(self) -> bool:
        return self.member


class Told:
    """What was answered."""

    def __init__(self) -> None:
        self.answers: dict[TopicPartition, PubSubError | None] = {}
        self.times = 0

    def __call__(self, answers: object) -> None:
        assert isinstance(answers, dict)
        self.answers.update(answers)
        self.times += 1


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def sender(broker: Broker) -> Iterator[Commits]:
    sender = Commits("billing", broker.send, broker.is_member, "localhost:1", Trouble())
    yield sender
    sender.close()


def _wait_on(gate: threading.Event) -> Callable[[list[KafkaPartition]], None]:
    def wait(offsets: list[KafkaPartition]) -> None:
        assert gate.wait(PATIENCE)

    return wait


def test_commits_that_follow_each_other_share_one_thread(broker: Broker, sender: Commits) -> None:
    for offset in range(1, 6):
        sender.begin({ZERO: Committed(offset, "")}, told := Told())
        assert sender.settle()
        assert (told.answers, told.times) == ({ZERO: None}, 1)
    assert broker.stored == [{0: offset} for offset in range(1, 6)]
    assert len(set(broker.threads)) == 1


def test_the_thread_ends_when_nothing_is_committed_and_another_takes_its_place(
    broker: Broker, sender: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty idle subscriptions of a process have none."""
    monkeypatch.setattr(commit_requests, "_IDLE", 0.01)
    for offset in (1, 2):
        sender.begin({ZERO: Committed(offset, "")}, Told())
        assert sender.settle()
        until(lambda: not broker.threads[-1].is_alive())
    assert broker.stored == [{0: 1}, {0: 2}]


def test_a_second_commit_is_refused_while_the_first_is_on_its_way(broker: Broker, sender: Commits) -> None:
    """Stored before the first commit, it would be undone by that."""
    gate = threading.Event()
    broker.before = _wait_on(gate)
    sender.begin({ZERO: Committed(1, "")}, first := Told())
    assert sender.busy
    sender.begin({ZERO: Committed(2, "")}, second := Told())
    assert isinstance(second.answers[ZERO], BrokerUnavailable)
    assert first.times == 0
    gate.set()
    assert sender.settle()
    assert (first.answers, broker.stored) == ({ZERO: None}, [{0: 1}])


def test_a_waiting_call_goes_on_after_the_answer(broker: Broker, sender: Commits) -> None:
    """Later decisions must know of the answer: a final commit, for instance."""
    told, gate = threading.Event(), threading.Event()

    def answered(answers: object) -> None:
        assert gate.wait(PATIENCE)
        told.set()

    sender.begin({ZERO: Committed(1, "")}, answered)
    until(lambda: broker.stored)
    threading.Timer(0.05, gate.set).start()
    assert sender.settle()
    assert told.is_set()


def test_what_was_given_up_sends_nothing_more_and_is_answered_when_it_is_over(
    broker: Broker, sender: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent after the revoke the commit would be stored under the next membership, over another owner's."""
    monkeypatch.setattr(commit_requests, "_PATIENCE", 0.05)
    monkeypatch.setattr(commit_requests, "_REQUEST_BYTES", 1000)
    gate = threading.Event()
    broker.before = _wait_on(gate)
    sender.begin({ZERO: Committed(1, "m" * 900), ONE: Committed(1, "m" * 900)}, told := Told())
    until(lambda: broker.threads)
    assert not sender.settle()
    assert sender.busy
    assert told.times == 0
    gate.set()
    until(lambda: not sender.busy)
    assert broker.stored == [{0: 1}], "the second request wasn't sent"
    assert told.answers[ZERO] is None
    assert isinstance(told.answers[ONE], FailedPrecondition)


def test_without_a_place_in_the_group_nothing_is_sent(broker: Broker, sender: Commits) -> None:
    """The broker would take the commit for a commit from outside, and not fence it."""
    broker.member = False
    sender.begin({ZERO: Committed(1, "")}, told := Told())
    assert sender.settle()
    assert isinstance(told.answers[ZERO], FailedPrecondition)
    assert not broker.stored


def test_one_refused_partition_does_not_take_the_others_with_it(broker: Broker, sender: Commits) -> None:
    """Librdkafka says of all partitions the error of a single partition, though the others are stored."""

    def refuse(offsets: list[KafkaPartition]) -> None:
        if any(each.partition == 1 for each in offsets):
            raise KafkaException(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE))

    broker.before = refuse
    sender.begin({ZERO: Committed(1, ""), ONE: Committed(1, "")}, told := Told())
    assert sender.settle()
    assert told.answers[ZERO] is None
    assert isinstance(told.answers[ONE], InvalidArgument)
    assert "offset.metadata.max.bytes" in str(told.answers[ONE])


def test_a_mistake_of_ours_is_an_answer_and_the_next_commit_goes_on(
    broker: Broker, sender: Commits, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an answer nothing of the partition would ever be committed again."""

    def fail(offsets: list[KafkaPartition]) -> None:
        broker.before = lambda offsets: None
        raise ZeroDivisionError("ours")

    broker.before = fail
    sender.begin({ZERO: Committed(1, "")}, told := Told())
    assert sender.settle()
    assert "ZeroDivisionError('ours')" in str(told.answers[ZERO])
    assert "ours" in caplog.text
    sender.begin({ZERO: Committed(2, "")}, told)
    assert sender.settle()
    assert (told.answers, broker.stored) == ({ZERO: None}, [{0: 2}])


def test_behind_a_request_without_an_answer_no_other_is_sent(
    broker: Broker, sender: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would wait for as long as the first."""
    monkeypatch.setattr(commit_requests, "_AGAIN", 0.0)
    monkeypatch.setattr(commit_requests, "_REQUEST_BYTES", 1000)

    def be_silent(offsets: list[KafkaPartition]) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    broker.before = be_silent
    sender.begin({ZERO: Committed(1, "m" * 900), ONE: Committed(1, "m" * 900)}, told := Told())
    assert sender.settle()
    assert len(broker.threads) == 1
    assert isinstance(told.answers[ZERO], DeadlineExceeded)
    assert isinstance(told.answers[ONE], DeadlineExceeded)
