"""The metadata text of a commit comes back as it was written, and another text is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.subscribe.formats import ack_map, notes
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.notes import Doubt, Notes

numbers = st.one_of(st.integers(1, 40), st.integers(1, 2**15), st.integers(1, 2**40))


@given(st.integers(0, 2**62), st.lists(st.tuples(numbers, numbers), max_size=200), st.integers(0, 2**60 - 1))
def test_a_map_comes_back_as_it_was_written(position: int, pairs: list[tuple[int, int]], writer: int) -> None:
    runs, at = [], position
    for gap, length in pairs:
        runs.append((at + gap, at + gap + length))
        at += gap + length
    written = AckMap(writer, tuple(runs))
    text = ack_map.encode(written, position)
    assert ack_map.decode(text, position) == written
    assert ack_map.decode(text, position + 1) is None


named = st.none() | st.builds(Named, st.integers(0, 2**60), st.integers(0, 2**60))

doubts = st.builds(Doubt, st.integers(0, 2**41), st.booleans())


@given(
    st.integers(0, 2**40),
    st.sets(st.integers(0, 90), max_size=20),
    named,
    st.booleans(),
    st.booleans(),
    doubts,
)
def test_what_else_a_map_says_comes_back(
    position: int, noted: set[int], checkpoint: Named | None, more: bool, clean: bool, doubt: Doubt
) -> None:
    told = Notes(notes.as_runs(position + at for at in noted))
    written = AckMap(3, ((position + 5, position + 7),), clean, 9, told, checkpoint, more, not more)
    written = written._replace(doubt=doubt.next(position, clean=True, reach=0))
    text = ack_map.encode(written, position)
    assert ack_map.decode(text, position) == written
    bare = ack_map.encode(written._replace(notes=notes.NOTHING), position)
    assert ack_map.bare_size(text, told, position) == len(bare)


@given(st.text(max_size=60))
def test_a_strangers_text_is_no_map(text: str) -> None:
    assert ack_map.decode(text, 0) is None


@given(st.data())
def test_a_damaged_map_is_no_map(data: st.DataObject) -> None:
    text = ack_map.encode(AckMap(5, ((3, 9), (12, 13))), 1)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(
        st.characters(min_codepoint=0x3400, max_codepoint=0xB3FF).filter(lambda c: c != text[at])
    )
    assert ack_map.decode(text[:at] + other + text[at + 1 :], 1) is None
    assert ack_map.decode(text[:at], 1) is None
