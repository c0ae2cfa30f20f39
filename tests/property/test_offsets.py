"""I3 and I5: the books of a partition against a naive model, and the map that is made of them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
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
