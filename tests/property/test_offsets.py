"""I3 and I5: the books of a partition against a naive model, and the map that is made of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats import ack_map, notes
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.notes import Doubt, Notes
from kafka_pubsub.subscribe.partition.offsets import Offsets
from tests.support import FakeBody


def record(offset: int) -> Record:
    return FakeBody(offset=offset)


class OffsetsMachine(RuleBasedStateMachine):
    """Receives with holes, finishes in any order, crashes and starts again from the map."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = Offsets(0)
        #: the log: which offsets exist; the naive books
        self.log: list[int] = []
        self.next = 0
        self.read_to = 0
        self.finished: set[int] = set()

    @rule(count=st.integers(1, 8), hole=st.sampled_from([0, 0, 0, 1, 3]))
    def write(self, count: int, hole: int) -> None:
        self.next += hole
        self.log += range(self.next, self.next + count)
        self.next += count

    @precondition(lambda self: any(o >= self.read_to for o in self.log))
    @rule(count=st.integers(1, 10), back=st.sampled_from([0, 0, 0, 2]))
    def receive(self, count: int, back: int) -> None:
        start = max(0, self.read_to - back)
        batch = [o for o in self.log if o >= start][:count]
        news = [r.offset() for r in self.offsets.receive([record(o) for o in batch])]
        assert news == [o for o in batch if o >= self.read_to and o not in self.finished]
        self.read_to = max(self.read_to, batch[-1] + 1)

    @precondition(lambda self: self.offsets.unfinished)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        some = data.draw(
            st.lists(st.sampled_from(list(self.offsets.unfinished)), min_size=1, max_size=6, unique=True)
        )
        self.offsets.finish([record(o) for o in some])
        self.finished |= set(some)

    @rule()
    def crash_and_restart(self) -> None:
        position = self.offsets.committable
        text = ack_map.encode(AckMap(7, tuple(self.offsets.runs())), position)
        found = ack_map.decode(text, position)
        assert found is not None
        self.offsets = Offsets(position, found.runs)
        self.read_to = position

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.offsets.check()
        unfinished = [o for o in self.log if o < self.read_to and o not in self.finished]
        assert list(self.offsets.unfinished) == unfinished
        assert all(o in self.finished for o in self.log if o < self.offsets.committable)
        covered = {o for start, end in self.offsets.runs() for o in range(start, end)}
        above = {o for o in self.log if o >= self.offsets.committable}
        assert covered & above == self.finished & above


TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)

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
