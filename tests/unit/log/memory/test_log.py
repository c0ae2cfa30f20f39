"""A log's holes, its start, and records of transactions that aren't visible yet."""

from __future__ import annotations

from kafka_pubsub.log.memory.log import PartitionLog


def _log(count: int) -> PartitionLog:
    log = PartitionLog("t", 0)
    for number in range(count):
        log.append(None, b"%d" % number, None, 0)
    return log


def _read(log: PartitionLog, offset: int = 0, limit: int = 100) -> list[int | None]:
    return [record.offset() for record in log.read(offset, limit)]


def test_offsets_rise_by_one() -> None:
    log = _log(3)
    assert (log.start, log.end, log.stable_end) == (0, 3, 3)
    assert _read(log) == [0, 1, 2]
    assert _read(log, 1, 1) == [1]
    assert _read(log, 3) == []


def test_a_hole_is_passed_over_and_never_filled() -> None:
    log = _log(2)
    log.skip(2)
    log.append(None, b"after", None, 0)
    assert _read(log) == [0, 1, 4]
    assert _read(log, 2) == [4]


def test_holes_at_the_end_move_the_end_only() -> None:
    log = _log(1)
    log.skip(3)
    assert (log.end, log.stable_end) == (4, 4)
    assert _read(log, 1) == []


def test_compaction_leaves_the_other_offsets_where_they_are() -> None:
    log = _log(5)
    log.remove([1, 3])
    assert _read(log) == [0, 2, 4]
    assert (log.start, log.end) == (0, 5)


def test_retention_moves_the_start() -> None:
    log = _log(5)
    log.truncate(3)
    assert (log.start, log.end) == (3, 5)
    assert _read(log) == [3, 4]
    log.truncate(1)
    assert log.start == 3
    log.truncate(100)
    assert (log.start, log.end) == (5, 5)


def test_an_open_transaction_hides_itself_and_all_after_it() -> None:
    log = _log(2)
    log.append(None, b"hidden", None, 0, transaction="a")
    log.append(None, b"plain", None, 0)
    assert (log.stable_end, log.end) == (2, 4)
    assert _read(log) == [0, 1]
    log.finish("a", committed=True)
    assert (log.stable_end, log.end) == (5, 5), "the marker takes an offset"
    assert _read(log) == [0, 1, 2, 3]


def test_an_aborted_transaction_leaves_holes() -> None:
    log = _log(1)
    log.append(None, b"never", None, 0, transaction="a")
    log.append(None, b"plain", None, 0)
    log.finish("a", committed=False)
    assert _read(log) == [0, 2]
    assert log.end == 4


def test_the_oldest_open_transaction_decides() -> None:
    log = _log(0)
    for name in ("a", "b", "a"):
        log.append(None, name.encode(), None, 0, transaction=name)
    log.finish("a", committed=True)
    assert log.stable_end == 1
    assert _read(log) == [0]
    log.finish("b", committed=True)
    assert _read(log) == [0, 1, 2]


def test_a_transaction_that_wrote_nothing_leaves_no_marker() -> None:
    log = _log(1)
    log.finish("unknown", committed=True)
    assert log.end == 1
