"""Batches of messages to causal topics: they come home whole and in order; what can't come home is a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.errors import InvalidArgument, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, RequestOutcome, Step
from kafka_pubsub.model import StoredRecord, TopicPartition, published_at
from kafka_pubsub.multicast.batch import BatchMessage
from kafka_pubsub.multicast.batches import Batches
from kafka_pubsub.multicast.layout import DEAD
from kafka_pubsub.multicast.records import DEAD_REASON_HEADER, DEAD_TOPIC_HEADER
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.multicast.values import Release, Stage
from tests.support import until

PATIENCE = 20.0
wait_until = until


class Picky(FaultPlan):
    """Topic `a` takes no message of the key `large`; commits fail while `failing` isn't 0."""

    failing = 0

    def refuses(self, transactional_id: str, topic: str, key: bytes | None) -> PubSubError | None:
        return InvalidArgument("too large") if (topic, key) == ("a", b"large") else None

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if step is Step.COMMIT and self.failing and "multicast-" in transactional_id:
            self.failing -= 1
            return RequestOutcome.ANSWER_LOST if self.failing % 2 else RequestOutcome.REFUSED
        return RequestOutcome.DONE


@pytest.fixture
def faults() -> Picky:
    return Picky()


@pytest.fixture
def backend(faults: Picky) -> MemoryBackend:
    return MemoryBackend(faults=faults)


@pytest.fixture
def topics(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend, services=False) as ps:
        for name in "abc":
            ps.create_topic(name, causal=True)
        yield ps


def log(backend: MemoryBackend, topic: str) -> Sequence[StoredRecord]:
    place = TopicPartition(topic, 0)
    start, end = backend.admin.log_range(place)
    return backend.record_fetch().fetch(place, range(start, end), 2**30, 1.0).records


def counted(sequencer: Sequencer, name: str, count: int) -> bool:
    return sequencer.metrics().get(name, 0) == count


def header(record: StoredRecord, name: str) -> str:
    return (dict(record.headers() or ())[name] or b"").decode()


def place(record: StoredRecord) -> tuple[int, str, int]:
    clock, _, rest = header(record, "ps-clock").partition("@")
    topic, _, number = rest.partition("#")
    return int(clock), topic, int(number)


def batches_of(records: Sequence[StoredRecord]) -> list[list[bytes]]:
    """The batches of a home topic; each must be in the order of its numbers, and whole from its first message on."""
    found = []
    for _, group in groupby(records, lambda record: place(record)[:2]):
        some = list(group)
        assert [place(each)[2] for each in some] == list(range(len(some))), "not in the order of publishing"
        (name,) = {header(each, "ps-id").rpartition(".")[0] for each in some}
        assert [header(each, "ps-id") for each in some] == [f"{name}.{number}" for number in range(len(some))]
        found.append([each.value() or b"" for each in some])
    return found


def play(backend: MemoryBackend, topics: PubSub) -> None:
    """Stages batches while no sequencer runs, and looks how they come home."""
    futures = {}
    first = topics.publish_multi(["a", "b"], b"0")
    until(lambda: len(log(backend, "a.inbox")) == 2)  # beside the record that the topic was made
    for number in range(1, 60):
        futures[b"%d" % number] = topics.publish_multi(
            ["b", "a"], b"%d" % number, ordering_key="k", attributes={"n": str(number)}
        )
    until(lambda: len(log(backend, "a.inbox")) >= 3)
    with Sequencer(topics) as sequencer:
        for data, future in futures.items():
            assert future.result(PATIENCE).timestamp > first.result(PATIENCE).timestamp, data
        last = topics.publish_multi(["a", "b"], b"last").result(PATIENCE)
        until(lambda: [len(log(backend, name)) for name in "ab"] == [61, 61])
        until(lambda: counted(sequencer, "delivered", 122))
    sent = {data: future.result() for data, future in futures.items()} | {b"0": first.result(), b"last": last}
    for name in "ab":
        records = log(backend, name)
        assert [each.value() for each in records] == [*(b"%d" % number for number in range(60)), b"last"]
        assert [place(each) for each in records] == [
            tuple(sent[each.value() or b""].timestamp) for each in records
        ]
        assert [header(each, "ps-id") for each in records] == [
            sent[each.value() or b""].message_id for each in records
        ]
        found = batches_of(records)
        assert [len(found[0]), len(found[-1])] == [1, 1]
        assert len(found) < 20, "they are staged together"
    stamps = [each.timestamp for each in sent.values()]
    assert len(set(stamps)) == len(stamps)


def test_a_batch_comes_home_whole_and_in_the_order_of_publishing(
    backend: MemoryBackend, topics: PubSub
) -> None:
    play(backend, topics)


def test_it_does_so_when_transactions_fail(backend: MemoryBackend, topics: PubSub, faults: Picky) -> None:
    """Of the publisher and of the sequencer, before the commit and without an answer."""
    faults.failing = 8
    play(backend, topics)
    assert faults.failing == 0


def reverse(messages: Sequence[BatchMessage] | None) -> Sequence[BatchMessage]:
    return (messages or ())[::-1]


def cut(messages: Sequence[BatchMessage] | None) -> Sequence[BatchMessage]:
    return (messages or ())[:-1] or messages or ()


@pytest.mark.parametrize("broken", [reverse, cut])
def test_a_batch_in_another_order_and_a_part_of_one_are_noticed(
    broken: Callable[[Sequence[BatchMessage] | None], object],
    backend: MemoryBackend,
    topics: PubSub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule broken on purpose: the test above must be able to fail."""
    real = Batches.at_home

    def at_home(self: Batches, release: Release, stage: Stage, value: bytes | None) -> object:
        return broken(real(self, release, stage, value))

    monkeypatch.setattr(Batches, "at_home", at_home)
    monkeypatch.setattr("tests.unit.multicast.test_batches.until", brief)
    with pytest.raises(AssertionError):
        play(backend, topics)


def brief(holds: Callable[[], object]) -> None:
    """What is broken doesn't come true later."""
    wait_until(holds, patience=2)


def test_a_message_has_the_time_of_its_publishing_in_all_topics(
    backend: MemoryBackend, topics: PubSub
) -> None:
    with Sequencer(topics) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        topics.publish_multi(["a", "b"], b"x").result(PATIENCE)
        until(lambda: log(backend, "a") and log(backend, "b"))
    times = {published_at(log(backend, name)[0]) for name in "ab"}
    assert len(times) == 1


def test_what_a_home_topic_refuses_is_a_dead_letter_and_the_rest_of_its_batch_comes_home(
    backend: MemoryBackend, topics: PubSub
) -> None:
    futures = [
        topics.publish_multi(["a", "b"], data, ordering_key=key, attributes={"n": "1"})
        for data, key in ((b"1", "k"), (b"2", "large"), (b"3", "k"), (b"4", "large"), (b"5", "k"))
    ]
    until(lambda: log(backend, "a.inbox"))
    with Sequencer(topics) as sequencer:
        sent = [future.result(PATIENCE) for future in futures]
        topics.publish_multi(["a", "b"], b"6").result(PATIENCE)
        until(lambda: len(log(backend, "a")) == 4 and len(log(backend, "b")) == 6)
        until(lambda: counted(sequencer, "undeliverable", 2))
    assert [each.value() for each in log(backend, "a")] == [b"1", b"3", b"5", b"6"]
    assert [each.value() for each in log(backend, "b")] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    dead = log(backend, DEAD)
    assert [(each.key(), each.value(), header(each, "n")) for each in dead] == [
        (b"large", b"2", "1"),
        (b"large", b"4", "1"),
    ]
    assert [header(each, "ps-id") for each in dead] == [sent[1].message_id, sent[3].message_id]
    assert [place(each) for each in dead] == [tuple(sent[1].timestamp), tuple(sent[3].timestamp)]
    assert {header(each, DEAD_TOPIC_HEADER) for each in dead} == {"a"}
    assert all("too large" in header(each, DEAD_REASON_HEADER) for each in dead)
