"""The finished messages of a commit, read with its checkpoint."""

from __future__ import annotations

import pytest

from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.model import Committed, Run, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.retry_topic import checkpoint_reader
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import (
    checkpoint_of,
    finished_at_home,
    finished_runs,
    gaps,
    map_of,
    offsets_of,
)
from tests.checkpoints import made, write

PLACE = TopicPartition("retry", 0)


@pytest.fixture
def backend() -> MemoryBackend:
    made = MemoryBackend()
    made.admin.create_topic("retry", 1, None, {})
    for _ in range(10):
        made.cluster.append("retry", 0, b"message")
    return made


def said(*runs: Run, named: Named | None = None, more: bool = True, position: int = 0) -> Committed:
    return Committed(
        position, ack_map.encode(AckMap(7, runs, checkpoint=named, more=more and named is not None), position)
    )


def finished(backend: MemoryBackend, stored: Committed, end: int = 20) -> list[Run]:
    return list(finished_runs(backend.record_fetch(), PLACE, stored, end))


def test_the_map_and_the_checkpoint_are_united(backend: MemoryBackend) -> None:
    named = write(backend.cluster, "retry", (1, 3), (5, 6), main=[(8, 9)])
    assert finished(backend, said((3, 4), (7, 8), named=named)) == [(1, 4), (5, 6), (7, 8)]
    assert finished(backend, said(named=named)) == [(1, 3), (5, 6)]
    assert finished(backend, said(named=named, position=2)) == [(2, 3), (5, 6)]
    home = said((3, 4), named=named)
    assert list(finished_at_home(backend, PLACE, home)) == [(3, 4), (8, 9)]
    assert list(finished_at_home(backend, None, said((3, 4)))) == [(3, 4)]


def test_a_checkpoint_that_reports_nothing_more_is_not_read(backend: MemoryBackend) -> None:
    backend.admin.delete_topic("retry")
    assert finished(backend, said((3, 4))) == [(3, 4)]
    assert finished(backend, said((3, 4), named=Named(9, 5), more=False)) == [(3, 4)]
    assert list(finished_at_home(backend, PLACE, said((3, 4), named=Named(9, 5), more=False))) == [(3, 4)]
    assert finished(backend, Committed(3, "")) == []
    assert finished(backend, Committed(None, "")) == []
    assert finished(backend, Committed(3, "not a map")) == []


def test_one_that_is_gone_or_another_reports_nothing(backend: MemoryBackend) -> None:
    assert finished(backend, said((3, 4), named=Named(9, 5))) == [(3, 4)], "that is a message"
    named = write(backend.cluster, "retry", (1, 2))
    assert finished(backend, said((3, 4), named=named._replace(nonce=6))) == [(3, 4)], "another's"
    backend.cluster.truncate("retry", 0, 11)
    assert finished(backend, said((3, 4), named=named)) == [(3, 4)]


def test_one_that_an_earlier_log_had_is_not_waited_for(backend: MemoryBackend) -> None:
    assert finished(backend, said((3, 4), named=Named(11, 5)), end=11) == [(3, 4)]


def test_the_records_of_a_large_one_are_found_among_others(backend: MemoryBackend) -> None:
    runs = tuple((at, at + 1) for at in range(1, 11, 2))
    named = write(backend.cluster, "retry", *runs, most=2)
    backend.cluster.append("retry", 0, b"another's")
    with_gaps = MemoryBackend()
    with_gaps.admin.create_topic("retry", 1, None, {})
    log = backend.cluster.log(PLACE)._records[named.offset :]
    for at, record in enumerate(log):
        with_gaps.cluster.append("retry", 0, record.value(), None, list(record.headers() or ()))
        for _ in range(50 * at):
            with_gaps.cluster.append("retry", 0, b"another's")
    for each, where in ((backend, named), (with_gaps, Named(0, named.nonce))):
        end = each.cluster.log(PLACE).end
        assert checkpoint_of(each.record_fetch(), PLACE, where, end) == made(*runs)
    with with_gaps.cluster.change():
        with_gaps.cluster.log(PLACE).remove([1])
    assert checkpoint_of(with_gaps.record_fetch(), PLACE, Named(0, named.nonce), end) is None, (
        "a record is missing"
    )


def test_what_is_no_map_is_none() -> None:
    assert map_of(None) is None
    assert map_of(Committed(None, "text")) is None
    assert map_of(Committed(3, "")) is None
    assert map_of(said((3, 4))) == AckMap(7, ((3, 4),))


def test_a_checkpoint_that_cannot_be_read_yet_is_waited_for(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = write(backend.cluster, "retry", (1, 3))

    class Slow(FaultPlan):
        reads = 0

        def read_limit(self, group: str, member: str, limit: int) -> int:
            self.reads += 1
            return limit if self.reads > 3 else 0

    slow = Slow()
    assert finished(MemoryBackend(cluster=backend.cluster, faults=slow), said(named=named)) == [(1, 3)]
    assert slow.reads == 4
    monkeypatch.setattr(checkpoint_reader, "_PATIENCE", 0.0)
    with pytest.raises(DeadlineExceeded, match=r"the checkpoint at offset 10 of retry\[0\] couldn't be read"):
        finished(MemoryBackend(cluster=backend.cluster, faults=Slow()), said(named=named))


def test_what_lies_between_runs() -> None:
    assert gaps(2, [(3, 5), (6, 7)], 9) == [(2, 3), (5, 6), (7, 9)]
    assert gaps(2, [(2, 5), (6, 12)], 9) == [(5, 6)]
    assert gaps(2, [(12, 13)], 9) == [(2, 9)]
    assert gaps(2, [], 2) == []
    assert list(offsets_of([(5, 6), (7, 9)])) == [5, 7, 8]
