"""Notes come back as they were written, and fit into their room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.subscribe.formats import notes
from kafka_pubsub.subscribe.formats.notes import MOST, ROOM, Notes

OFFSETS = st.sets(st.integers(0, 200) | st.integers(0, 2**40), max_size=60)


@given(OFFSETS, st.integers(0, 50), st.booleans())
def test_notes_come_back_as_they_were_written(some: set[int], below: int, tried: bool) -> None:
    position = max(0, min(some, default=0) - below)
    written = Notes(notes.as_runs(some), max(some) if some and tried else None)
    assert set(notes.offsets(written)) == some
    assert notes.parse(notes.numbers(written, position), position) == written


def test_an_even_count_of_numbers_is_no_note() -> None:
    assert notes.parse([0, 1], 0) is None


@given(
    st.sets(st.integers(0, 2**27), max_size=MOST),
    st.sets(st.integers(0, 2**62), max_size=200),
)
def test_what_is_a_duty_is_noted_and_notes_fit(duty: set[int], wishes: set[int]) -> None:
    found = notes.fit(duty, wishes, 0)
    assert duty <= set(notes.offsets(found)) <= duty | wishes
    assert notes.units(notes.numbers(found, 0)) <= ROOM
    assert len(notes.offsets(found)) <= max(MOST, len(duty))
