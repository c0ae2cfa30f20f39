"""What a delay router commits beside its offsets comes back as it was, and nothing else is taken for it."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.delays.progress import (
    IngestProgress,
    Progress,
    parse_ingest,
    parse_tier,
    writer_of,
)
from kafka_pubsub.delays.values import number_of
from kafka_pubsub.errors import FailedPrecondition

numbers = st.integers(0, 2**62)
keys = st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62))
marks = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(-1, 2**62), st.integers(-1, 2**62)), max_size=50
).map(tuple)


@given(
    numbers, numbers, keys, numbers, st.text("abcz-0123456789", max_size=40), marks, numbers, numbers, numbers
)
def test_progress_comes_back_from_its_text(
    position: int,
    handled: int,
    mark: tuple[int, int],
    time: int,
    writer: str,
    behind: tuple[tuple[int, int, int], ...],
    home_before: int,
    reached: int,
    partitions: int,
) -> None:
    said = IngestProgress(position, handled, mark, time, 28, behind, home_before, reached, partitions)
    assert parse_ingest(position, said.text(writer)) == said
    assert writer_of(position, said.text(writer)) == (writer or None)
    assert parse_tier(position, Progress(position, handled).text()) == Progress(position, handled)
    assert len(said.text(writer)) < 4000


@given(numbers, numbers, st.integers(0, 200), st.characters(codec="ascii"))
def test_damaged_progress_is_refused(position: int, handled: int, at: int, other: str) -> None:
    text = IngestProgress(position, handled, (5, 7), 9).text("writer")
    at %= len(text)
    damaged = text[:at] + other + text[at + 1 :]
    if damaged != text:
        with pytest.raises(FailedPrecondition):
            parse_ingest(position, damaged)
    with pytest.raises(FailedPrecondition):
        parse_ingest(position + 1, text)


def test_an_offset_without_a_text_counts_as_it_stands() -> None:
    assert parse_ingest(7, "") == IngestProgress(7, 7, time=None)
    assert parse_tier(7, "") == Progress(7, 7)
    assert writer_of(7, "") is None


def test_a_commit_of_version_4_says_nothing_of_what_is_home() -> None:
    body = "4;9;33;6;32;1c;a.15.3;writer"
    text = f"{body};{zlib.crc32(f'7;{body}'.encode()):08x}"
    assert parse_ingest(7, text) == IngestProgress(7, 9, (50, 5), 50, 28, ((10, 20, 2),))


def test_a_home_that_is_behind_has_a_mark_of_its_own() -> None:
    said = IngestProgress(7, 7, (50, 5), behind=((number_of("orders"), 20, 2),))
    assert (said.mark_of("orders"), said.mark_of("others")) == ((20, 2), (50, 5))


def test_fifty_homes_fit_into_a_commit() -> None:
    behind = tuple((2**32 - 1 - number, 2**42, 2**40) for number in range(50))
    assert len(IngestProgress(2**40, 2**40, (2**42, 2**40), 2**42, 28, behind).text("w" * 60)) < 4000
