"""A tally's bytes, and which tally counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.core import tally
from kafka_pubsub.core.offsets import Run
from kafka_pubsub.core.retry_books import RetryBooks, Tally
from kafka_pubsub.core.tally import PAUSE, Tallies

PARTITION = 3


def runs_of(numbers: list[tuple[int, int]]) -> list[Run]:
    runs, at = [], 0
    for gap, length in numbers:
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return runs


@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40)), max_size=50).map(runs_of))
def test_what_is_written_is_read(runs: list[Run]) -> None:
    assert tally.decode(tally.encode(runs)) == runs


@given(st.binary(max_size=40))
def test_a_strangers_bytes_are_no_tally(value: bytes) -> None:
    assert tally.decode(value) is None


@pytest.mark.parametrize("at", range(8))
def test_a_damaged_one_is_none(at: int) -> None:
    value = bytearray(tally.encode([(3, 5), (900, 1000)]))
    value[at] ^= 0x40
    assert tally.decode(bytes(value)) is None


def test_nothing_is_no_tally() -> None:
    assert tally.decode(None) is None
    assert tally.decode(b"") is None


def books(runs: list[Run], end: int = 100) -> RetryBooks:
    """All below `end` was read; these are finished."""
    found = RetryBooks(0)
    found.advance(0)
    for offset in range(end):
        found.receive(offset)
    for start, stop in runs:
        for offset in range(start, stop):
            found.finish(offset)
    return found


def tallies(some: RetryBooks) -> Tallies:
    return Tallies(some, "id", PARTITION, 7)


def written(some: Tallies, now: float = 0.0) -> tally.TallyRecord:
    assert some.helps(now)
    record = some.write(now, 1234)
    assert record is not None
    return record


def come_back(some: Tallies, its: RetryBooks, record: tally.TallyRecord) -> int:
    offset = its.position
    its.receive(offset)
    some.came(record.info, offset)
    return offset


def test_it_is_named_when_it_has_come_back_and_not_before() -> None:
    its = books([(5, 6), (9, 12)])
    some = tallies(its)
    record = written(some)
    assert tally.decode(record.value()) == [(5, 6), (9, 12)]
    assert record.timestamp() == (1, 1234)
    assert its.run_count == 2
    offset = come_back(some, its, record)
    assert its.tally == offset
    assert its.run_count == 0
    its.finish(20)
    its.finish(6)
    assert its.fresh == [(5, 7), (20, 21)]  # the one that has grown needs room again


def test_it_helps_only_where_more_wait_than_there_are_runs() -> None:
    its = books([(at, at + 1) for at in range(1, 99, 2)])
    for offset in (0, 98, 99):
        its.finish(offset)
    assert its.waiting == its.total
    assert not tallies(its).helps(0.0)
    assert tallies(books([(1, 2)])).helps(0.0)


def test_only_one_is_on_its_way_until_it_should_have_come() -> None:
    its = books([(5, 6)])
    some = tallies(its)
    first = written(some)
    assert some.helps(PAUSE / 2)  # it is coming
    assert some.write(PAUSE / 2, 0) is None
    second = written(some, PAUSE)
    assert second.info.origin != first.info.origin
    late = come_back(some, its, first)
    assert its.tally is None  # it says what is true, but commits might name it with what the second one says
    assert some.are_at(late)
    assert its.tally != come_back(some, its, second) - 1
    assert its.tally == late + 1


def test_one_that_was_not_stored_is_written_again_after_a_pause() -> None:
    its = books([(5, 6)])
    some = tallies(its)
    written(some)
    some.aborted()
    assert not some.helps(PAUSE / 2)
    written(some, PAUSE)


def test_the_next_one_calls_the_one_before_finished() -> None:
    its = books([(5, 6)])
    some = tallies(its)
    first = come_back(some, its, written(some))
    its.finish(8)
    record = written(some)
    assert tally.decode(record.value()) == [(5, 6), (8, 9), (first, first + 1)]
    assert not its.finished(first)  # commits name it until the next one has come
    come_back(some, its, record)
    assert its.finished(first)
    assert its.run_count == 0


def test_whoever_starts_with_one_finishes_those_that_nobody_names() -> None:
    its = RetryBooks(0, [(9, 12)], Tally(20, [(5, 6)]))
    some = tallies(its)
    for offset in range(30):
        its.receive(offset)
    assert its.runs == [(5, 6), (9, 12)]
    assert its.fresh == [(9, 12)]
    other = tallies(books([(1, 2)]))
    for offset in (20, 25):
        some.came(written(other, offset * PAUSE).info, offset)
    assert its.fresh == [(9, 12)]
    assert some.look(room=0) is True  # two runs are few: it isn't needed any more
    assert its.fresh == its.runs
    assert not its.finished(25)
    assert some.look(room=2) is True
    assert its.finished(20)
    assert its.finished(25)


def test_one_at_the_front_is_finished_though_there_is_no_room() -> None:
    its = RetryBooks(20, [(30, 31)], Tally(20, [(5, 6)]))
    for offset in range(20, 40):
        its.receive(offset)
    assert tallies(its).look(room=0) is True
    assert its.committable == 21


def test_one_that_the_log_has_lost_is_forgotten() -> None:
    its = RetryBooks(10, [(15, 16)], Tally(14, [(12, 13)]))
    for offset in (10, 11, 12, 13, 15, 17):
        its.receive(offset)
    assert its.finished(14)  # a hole beside a finished record
    some = tallies(its)
    assert some.look(room=5) is True
    assert its.tally is None
    assert some.useless == set()
