"""Which partitions of the delays share keys after a growth, and what each may do."""

from __future__ import annotations

import pytest

from kafka_pubsub.delays.growth import ALONE, NOTHING_YET, Growth, Step, check_growth
from kafka_pubsub.delays.progress import IngestProgress, parse_ingest
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.log.partitioner import partition_of

GROWTH = Growth(2, 6)


def said(home_before: int, reached: int) -> IngestProgress:
    return IngestProgress(3, 4, home_before=home_before, reached=reached)


def test_an_added_partition_takes_the_keys_of_the_one_that_it_succeeds_only() -> None:
    for number in range(500):
        key = f"orders\0{number}".encode()
        former, present = partition_of(key, GROWTH.former), partition_of(key, GROWTH.partitions)
        assert present == former or (former in GROWTH.others(present) and present in GROWTH.others(former))


def test_partitions_that_share_keys_know_each_other() -> None:
    assert [list(GROWTH.others(number)) for number in range(6)] == [[2, 4], [3, 5], [0], [1], [0], [1]]


def test_an_added_partition_stays_before_both_times_of_the_former_one() -> None:
    assert GROWTH.step(2, [said(70, 50)]) == Step(50, 70)
    assert GROWTH.step(2, [said(40, 50)]) == Step(40, 40)


def test_a_former_partition_goes_up_to_the_slowest_that_succeeds_it() -> None:
    assert GROWTH.step(0, [said(70, 50), said(60, 90)]) == Step(51, 61)


def test_nothing_is_handled_while_another_partition_has_committed_nothing() -> None:
    assert GROWTH.step(2, [None]) == NOTHING_YET
    assert GROWTH.step(0, [said(70, 50), None]) == Step(0, 71)


def test_a_partition_that_shares_no_keys_is_alone() -> None:
    assert Growth(2, 2).step(1, []) == ALONE


def test_where_nothing_waits_no_time_is_asked_for() -> None:
    assert GROWTH.step(2, [said(1 << 63, 50)]) == Step(50, 0)


def test_a_commit_of_an_older_version_lets_nothing_be_handled() -> None:
    assert GROWTH.step(2, [IngestProgress(3, 4)]) == Step(0, 0)


def test_both_times_are_committed() -> None:
    progress = said(1 << 63, 1_700_000_000_000)
    assert parse_ingest(3, progress.text("writer")) == progress


@pytest.mark.parametrize(
    ("ingest", "waiting", "is_drained"),
    [(9, [], False), (10, [], True), (10, [12], True), (10, [12, 9], False)],
)
def test_a_growth_is_over_when_nothing_below_the_ends_waits(
    ingest: int, waiting: list[int], is_drained: bool
) -> None:
    assert GROWTH._replace(ends=(10, 5)).is_drained(0, ingest, waiting) == is_drained
    assert not GROWTH.is_drained(0, ingest, waiting)


def test_only_multiples_are_taken_and_one_growth_at_a_time() -> None:
    check_growth(2, 12, None)
    check_growth(2, 2, None)
    check_growth(6, 6, GROWTH)
    with pytest.raises(InvalidArgument, match="there are 4, and Kafka takes none away"):
        check_growth(4, 2, None)
    with pytest.raises(InvalidArgument, match="declare 8 or another multiple"):
        check_growth(2, 7, None)
    with pytest.raises(FailedPrecondition, match="they grow from 2 to 6"):
        check_growth(6, 12, GROWTH)


def test_a_message_whose_key_stays_or_without_one_shares_nothing() -> None:
    for number in range(500):
        key = f"orders\0{number}".encode()
        former, present = partition_of(key, GROWTH.former), partition_of(key, GROWTH.partitions)
        assert GROWTH.shares(former, key) == (present != former)
        assert present < GROWTH.former or GROWTH.shares(present, key)
    assert not GROWTH.shares(0, None)
    assert not GROWTH.shares(4, None)
