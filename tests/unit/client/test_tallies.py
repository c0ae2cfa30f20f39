"""What a commit of a retry partition calls finished, read with the tally that it names."""

from __future__ import annotations

import pytest

from kafka_pubsub.client import tallies
from kafka_pubsub.client.tallies import finished_runs, gaps, is_tally, offsets_of
from kafka_pubsub.core import ack_map, tally
from kafka_pubsub.core.ack_map import AckMap
from kafka_pubsub.core.offsets import Run
from kafka_pubsub.core.retry_record import RetryInfo, Why, retry_headers
from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.memory import MemoryBackend
from kafka_pubsub.memory.faults import FaultPlan
from kafka_pubsub.model import Committed, TopicPartition

PLACE = TopicPartition("retry", 0)
HEADERS = retry_headers(None, RetryInfo("id", 0, 0, why=Why.TALLY))


@pytest.fixture
def backend() -> MemoryBackend:
    made = MemoryBackend()
    made.admin.create_topic("retry", 1, None, {})
    for _ in range(10):
        made.cluster.append("retry", 0, b"message")
    return made


def said(*runs: Run, tally: int | None = None, position: int = 0) -> Committed:
    return Committed(position, ack_map.encode(AckMap(7, runs, tally=tally), position))


def finished(backend: MemoryBackend, stored: Committed) -> list[Run]:
    return list(finished_runs(backend.record_fetch(), PLACE, stored, 11))


def test_the_map_and_the_tally_are_united(backend: MemoryBackend) -> None:
    backend.cluster.append("retry", 0, tally.encode([(1, 3), (5, 6)]), None, HEADERS)
    assert finished(backend, said((3, 4), (7, 8), tally=10)) == [(1, 4), (5, 6), (7, 8)]
    assert finished(backend, said(tally=10)) == [(1, 3), (5, 6)]


def test_without_a_tally_nothing_is_read(backend: MemoryBackend) -> None:
    backend.admin.delete_topic("retry")
    assert finished(backend, said((3, 4))) == [(3, 4)]
    assert finished(backend, Committed(3, "")) == []
    assert finished(backend, Committed(None, "")) == []
    assert finished(backend, Committed(3, "not a map")) == []


def test_a_tally_that_is_gone_or_none_tells_nothing(backend: MemoryBackend) -> None:
    assert finished(backend, said((3, 4), tally=9)) == [(3, 4)], "that is a message"
    backend.cluster.truncate("retry", 0, 10)
    assert finished(backend, said((3, 4), tally=9)) == [(3, 4)]


def test_one_that_an_earlier_log_had_is_not_waited_for(backend: MemoryBackend) -> None:
    assert finished(backend, said((3, 4), tally=11)) == [(3, 4)]


def test_only_a_tally_is_one() -> None:
    assert is_tally([("a", b"b"), *HEADERS])
    assert not is_tally([])
    assert not is_tally([("a", b"b")])
    assert not is_tally([("ps-retry", b"rubbish")])
    assert not is_tally(retry_headers(HEADERS, RetryInfo("id", 0, 0, why=Why.TAIL)))


def test_a_tally_that_cannot_be_read_yet_is_waited_for(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.cluster.append("retry", 0, tally.encode([(1, 3)]), None, HEADERS)

    class Slow(FaultPlan):
        reads = 0

        def read_limit(self, group: str, member: str, limit: int) -> int:
            self.reads += 1
            return limit if self.reads > 3 else 0

    slow = Slow()
    assert finished(MemoryBackend(cluster=backend.cluster, faults=slow), said(tally=10)) == [(1, 3)]
    assert slow.reads == 4
    monkeypatch.setattr(tallies, "_PATIENCE", 0.0)
    with pytest.raises(DeadlineExceeded, match=r"the tally at offset 10 of retry\[0\] couldn't be read"):
        finished(MemoryBackend(cluster=backend.cluster, faults=Slow()), said(tally=10))


def test_what_lies_between_runs() -> None:
    assert gaps(2, [(3, 5), (6, 7)], 9) == [(2, 3), (5, 6), (7, 9)]
    assert gaps(2, [(2, 5), (6, 12)], 9) == [(5, 6)]
    assert gaps(2, [(12, 13)], 9) == [(2, 9)]
    assert gaps(2, [], 2) == []
    assert list(offsets_of([(5, 6), (7, 9)])) == [5, 7, 8]
