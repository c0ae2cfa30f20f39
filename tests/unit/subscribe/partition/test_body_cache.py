"""The memory of messages in the retry partition: numbers, and only the bodies that are soon due."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Sequence

import pytest

from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.formats.record import RetryInfo, RetryRecord, Why
from kafka_pubsub.subscribe.partition.body_cache import Bodies
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, StoreMoves
from kafka_pubsub.subscribe.partition.events import (
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    MovesAnswered,
    ReadUpTo,
    RetryCaughtUp,
    RetryFetched,
)
from kafka_pubsub.subscribe.partition.key_line import DueAndFlags, Entry, KeyLine
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition
from kafka_pubsub.subscribe.partition.settings import RECORD_OVERHEAD, Found, LogStart, Rules, Start
from tests.partition_ids import P
from tests.unit.subscribe.partition.test_retry_partition import TOPIC_ID, Scene, Stored, parked, stored

IN_AN_HOUR, IN_A_SECOND = 3_600_000, 1000


def half_of(scene: Scene) -> RetryPartition:
    return scene.partition._retry_partition


def test_bodies_are_kept_of_what_is_soon_due_and_not_of_what_waits_for_an_hour() -> None:
    scene = Scene()
    scene.do(
        RetryFetched(
            [
                parked(0, 0, b"long", due=IN_AN_HOUR, why=Why.DELAYED),
                parked(1, 1, b"long", why=Why.BACKLOG),
                parked(2, 2, b"soon", due=IN_A_SECOND),
                parked(3, 3, b"soon", why=Why.BACKLOG),
                parked(4, 4, None, due=IN_AN_HOUR, why=Why.DELAYED),
                parked(5, 5, None, due=IN_A_SECOND),
            ]
        )
    )
    assert set(half_of(scene).retries.bodies.kept) == {2, 3, 5}


def test_what_waited_for_an_hour_is_read_when_its_time_has_come() -> None:
    scene = Scene(
        [parked(0, 0, b"long", due=IN_AN_HOUR, why=Why.DELAYED), parked(1, 1, b"long", why=Why.BACKLOG)]
    )
    scene.fetch((2, b"other"))
    assert [lease.key for lease in scene.begun()] == [b"other"]
    scene.now = IN_AN_HOUR / 1000
    scene.settle()
    assert [(lease.key, [each.offset() for each in lease.records]) for lease in scene.begun()] == [
        (b"long", [0, 1])
    ]


def test_a_message_on_its_way_back_holds_no_body() -> None:
    """Reading may be far behind writing: thousands of them would hold megabytes."""
    scene = Scene()
    scene.fetch((0, b"k"), (1, b"k"))
    [lease] = scene.begun(1)
    scene.nack(lease)
    [effect] = [effect for effect in scene.tick(0.2) if isinstance(effect, StoreMoves)]
    scene.do(MovesAnswered(Ending.STORED))
    [move] = half_of(scene).retries.transit.values()
    assert not hasattr(move, "record")
    scene.do(RetryFetched([Stored(0, b"k", effect.records[0].headers)]))
    assert not half_of(scene).retries.transit
    scene.settle()
    scene.now += 2.0
    scene.settle()
    assert [lease.records[0].offset() for lease in scene.begun()] == [0]


def test_the_key_of_a_message_that_has_moved_is_kept_once() -> None:
    """Each record that is read brings an object of its own for its key: 48 bytes a key, if both stayed."""
    scene = Scene()
    scene.fetch((0, b"customer"))
    [lease] = scene.begun(1)
    scene.do(LeasesReported([LeaseReport(lease, 0, LeaseOutcome.NACKED, 3600.0)]))
    [effect] = [effect for effect in scene.tick(0.2) if isinstance(effect, StoreMoves)]
    scene.do(MovesAnswered(Ending.STORED))
    another = bytes(bytearray(b"customer"))
    before = sys.getrefcount(another)
    scene.do(RetryFetched([Stored(0, another, effect.records[0].headers)]))
    assert half_of(scene).retries.parking.lines.count(b"customer") == 1
    assert sys.getrefcount(another) == before


def test_the_room_for_bodies_counts_what_holds_them() -> None:
    bodies = Bodies(max_bytes=10 * (RECORD_OVERHEAD + 1))
    info = RetryInfo(TOPIC_ID, 0, 0)
    for offset in range(100):
        bodies.offer(RetryRecord(stored(offset, b"k", info), info, "t"))
    assert len(bodies.kept) == 10
    bodies.check()


def test_what_only_follows_is_taken_in_quickly_and_no_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a restart most records go the short way, with the same result as the long way's."""
    whys = [Why.NACKED, *[Why.BACKLOG] * 30, Why.REPLAYED, Why.BACKLOG, Why.EXPIRED]
    records = [
        parked(at, origin, b"k%d" % (at % 3), attempt=2 if why is Why.NACKED else 1, due=at % 2 * 9, why=why)
        if why is not Why.BACKLOG
        else parked(at, origin, b"k%d" % (at % 3), why=why)
        for at, (why, origin) in enumerate(zip(whys * 3, [*range(60), *range(20, 60), 5, 4], strict=True))
    ]
    records[40] = Stored(40, b"k1", [("theirs", b"1"), *(records[40].headers() or ())])
    records[43] = Stored(
        43, b"k1", [(name, (value or b"")[:-1] + b"?") for name, value in records[43].headers() or ()]
    )
    short: list[int] = []
    follow = KeyLine.follow

    def noting(line: KeyLine, origin: int, offset: int, schedule: DueAndFlags) -> bool:
        short.append(offset)
        return follow(line, origin, offset, schedule)

    monkeypatch.setattr(KeyLine, "follow", noting)
    quick = lines_of(records)
    assert len(short) > 50
    monkeypatch.setattr(KeyLine, "follow", lambda *_: False)
    assert lines_of(records) == quick


def test_a_key_with_one_parked_message_costs_less_than_250_bytes() -> None:
    """In the whole partition, after a restart: its name, its place and its appointment."""
    count, read = 20_000, 500
    start = Found("t", TOPIC_ID, LogStart(0, end=3 * count), LogStart(0, end=count))
    commit = CommitBoth(0, "", Commit(0, ""))
    partition = Partition(Start(P[0], 1, 1, commit, start), Rules(ordered=True), lambda: 0.5)
    tracemalloc.start()
    try:
        for low in range(0, count, read):
            records = [
                parked(at, 3 * at, b"customer-%09d" % at, attempt=2, due=IN_AN_HOUR + at, why=Why.DELAYED)
                for at in range(low, low + read)
            ]
            partition.handle(RetryFetched(records), 0.0)
        del records
        partition.handle(RetryCaughtUp(count), 0.0)
        behind, _ = tracemalloc.get_traced_memory()
        partition.handle(ReadUpTo(3 * count, count), 0.0)
        due, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(partition._retry_partition.retries.parking) == count
    assert partition._queues.queues == {}
    assert behind < 250 * count, f"{behind / count:.0f} bytes a key, before main has been read"
    assert due < 250 * count, f"{due / count:.0f} bytes a key"


def lines_of(records: Sequence[Stored]) -> dict[bytes, list[Entry]]:
    partition = Scene(records).partition
    partition.check()
    lines = partition._retry_partition.retries.parking.lines
    return {key: list(lines.entries(key)) for key in lines}
