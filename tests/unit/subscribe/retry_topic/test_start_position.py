"""Where an ownership begins: each rule, and the line in the log."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub import FailedPrecondition
from kafka_pubsub.config import SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.model import Committed
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.retry_topic.start_position import REACH, Beginning, beginning, reach


def record(positions: dict[int, int] | None = None) -> SubscriptionRecord:
    return SubscriptionRecord(
        name="billing",
        topic="orders",
        topic_id="id",
        partitions=4,
        options=SubscriptionOptions(),
        positions=positions or {},
    )


def written(offset: int, *runs: tuple[int, int]) -> Committed:
    return Committed(offset, ack_map.encode(AckMap(9, runs), offset))


def test_a_stored_position_is_used_with_its_map(caplog: pytest.LogCaptureFixture) -> None:
    begun = beginning(record({2: 1}), 2, written(10, (12, 15), (17, 18)), (0, 20))
    assert begun == Beginning(10, ((12, 15), (17, 18)))
    assert not caplog.records


@given(metadata=st.text(min_size=1))
def test_a_map_that_is_not_ours_is_replayed_never_skipped(metadata: str) -> None:
    assert beginning(record(), 0, Committed(10, metadata), (0, 20)) == Beginning(10)


def test_a_map_that_stands_beside_another_offset_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    committed = Committed(11, written(10, (12, 15)).metadata)
    assert beginning(record(), 0, committed, (0, 20)) == Beginning(11)
    assert "isn't readable" in caplog.text


def test_an_empty_map_is_nothing_to_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    assert beginning(record(), 0, Committed(10, ""), (0, 20)) == Beginning(10)
    assert not caplog.records


def test_a_forgotten_position_is_taken_from_the_catalog_and_said(caplog: pytest.LogCaptureFixture) -> None:
    assert beginning(record({2: 7}), 2, Committed(None, ""), (0, 20)) == Beginning(7)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "partition 2 of topic 'orders'" in caplog.text
    assert "offset 7" in caplog.text


def test_a_position_that_nobody_knows_is_refused_not_guessed() -> None:
    with pytest.raises(FailedPrecondition, match="has no position in partition 2 of topic 'orders'"):
        beginning(record({0: 7}), 2, Committed(None, ""), (0, 20))


@pytest.mark.parametrize("committed", [Committed(3, ""), Committed(None, "")])
def test_what_retention_deleted_is_counted_aloud(
    committed: Committed, caplog: pytest.LogCaptureFixture
) -> None:
    assert beginning(record({0: 3}), 0, committed, (8, 20)) == Beginning(8)
    assert caplog.records[-1].levelno == logging.ERROR
    assert "5 messages of partition 0" in caplog.text


def test_a_map_survives_a_start_that_has_moved() -> None:
    assert beginning(record(), 0, written(3, (5, 9), (12, 14)), (8, 20)).known == ((5, 9), (12, 14))


@pytest.mark.parametrize("committed", [Committed(21, ""), Committed(None, "")])
def test_a_position_beyond_the_end_is_another_log(committed: Committed) -> None:
    with pytest.raises(FailedPrecondition, match="which ends at 20"):
        beginning(record({0: 21}), 0, committed, (0, 20))


@pytest.mark.parametrize("offset", [0, 20])
def test_both_ends_of_the_log_are_in_it(offset: int) -> None:
    assert beginning(record(), 0, Committed(offset, ""), (0, 20)).position == offset


def test_a_dead_owner_had_not_come_to_the_end_of_a_long_log() -> None:
    """Else a backlog of a million messages would be begun with a note for each."""
    assert reach(Beginning(100), 1_000_000) == 100 + REACH
    assert reach(Beginning(100, [(200, 300), (400, 900)]), 1_000_000) == 900 + REACH
    assert reach(Beginning(100, [(200, 300)]), 310) == 310
