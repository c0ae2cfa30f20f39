"""Records of inboxes that are foreign or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import NewRecord
from kafka_pubsub.multicast.layout import DEAD
from kafka_pubsub.multicast.records import DEAD_REASON_HEADER, StageRecord, encode_stage
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.multicast.values import Stage
from tests.multicasts import named
from tests.support import until
from tests.unit.multicast.test_batches import PATIENCE, Picky, counted, header, log


@pytest.fixture
def backend(faults: Picky) -> MemoryBackend:
    return MemoryBackend(faults=faults)


@pytest.fixture
def topics(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend, services=False) as ps:
        for name in "abc":
            ps.create_topic(name, causal=True)
        yield ps


def test_a_record_of_an_inbox_that_isnt_ours_is_one_dead_letter(
    backend: MemoryBackend, topics: PubSub
) -> None:
    record = NewRecord("a.inbox", 0, b"key", b"?", [("ps-stage", b"?"), ("more", None)])
    backend.transactions("foreign").transact([record], {}, None)
    for number in range(3):  # a successor makes no second dead letter
        with Sequencer(topics) as sequencer:
            topics.publish_multi(["a", "b"], b"%d" % number).result(PATIENCE)
            until(lambda: len(log(backend, "a")) == number + 1)  # noqa: B023
            until(lambda: counted(sequencer, "skipped", int(number == 0)))  # noqa: B023
    (dead,) = log(backend, DEAD)
    assert (dead.key(), dead.value()) == (b"key", b"?")
    assert list(dead.headers() or ())[:2] == [("ps-stage", b"?"), ("more", None)]
    assert "the record at offset 2 in partition 0 of 'a.inbox' isn't ours" in header(dead, DEAD_REASON_HEADER)


def test_a_foreign_record_behind_a_batch_that_waits_is_dead_lettered_once(
    backend: MemoryBackend, topics: PubSub
) -> None:
    """Lies between records that a successor reads again."""
    stage = StageRecord(Stage("foreign-1", named(backend, "a", "b")), 0)
    header_of_stage = [encode_stage(stage)]
    foreign = backend.transactions("foreign")
    # Staged at a single topic of two: the message waits for ever.
    foreign.transact([NewRecord("a.inbox", 0, None, b"", header_of_stage)], {}, None)
    foreign.transact([NewRecord("a.inbox", 0, None, b"?", ())], {}, None)
    for number in range(2):
        with Sequencer(topics) as sequencer:
            topics.publish_multi(["b"], b"%d" % number).result(PATIENCE)
            until(lambda: log(backend, DEAD))
            until(lambda: counted(sequencer, "skipped", int(number == 0)))  # noqa: B023
    assert len(log(backend, DEAD)) == 1


def test_a_batch_that_cant_be_read_is_a_dead_letter_of_its_topic(
    backend: MemoryBackend, topics: PubSub
) -> None:
    stage = StageRecord(Stage("foreign-1", named(backend, "a")), 0)
    record = NewRecord("a.inbox", 0, None, b"damaged", [encode_stage(stage)])
    backend.transactions("foreign").transact([record], {}, None)
    with Sequencer(topics) as sequencer:
        topics.publish_multi(["a"], b"x").result(PATIENCE)
        until(lambda: log(backend, DEAD))
        until(lambda: counted(sequencer, "undeliverable", 1))
    (dead,) = log(backend, DEAD)
    assert dead.value() == b"damaged"
    assert "its messages can't be read" in header(dead, DEAD_REASON_HEADER)
    assert [each.value() for each in log(backend, "a")] == [b"x"]
