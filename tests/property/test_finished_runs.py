"""The books of a retry partition against naive ones; holes never cost a run."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.model import Run
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import united
from kafka_pubsub.subscribe.partition.finished_runs import FinishedRuns


class RetryBooksMachine(RuleBasedStateMachine):
    """Reads a log with holes, finishes in any order, crashes and starts from the committed position."""

    def __init__(self) -> None:
        super().__init__()
        self.finished_runs = FinishedRuns(0)
        self.log: list[int] = []
        self.next = 0
        self.read_to = 0
        self.finished: set[int] = set()
        #: The contents of the checkpoint that commits name.
        self.told: list[Run] = []

    @rule(count=st.integers(1, 6), hole=st.sampled_from([0, 1, 1, 4]))
    def write(self, count: int, hole: int) -> None:
        self.log += range(self.next, self.next + count)
        self.next += count + hole

    @rule(count=st.integers(1, 8), back=st.sampled_from([0, 0, 3]))
    def receive(self, count: int, back: int) -> None:
        for offset in [o for o in self.log if o >= self.read_to - back][:count]:
            news = self.finished_runs.receive(offset)
            assert news == (offset >= self.read_to and offset not in self.finished)
            self.read_to = max(self.read_to, offset + 1)

    @precondition(lambda self: self.read_to == (self.log[-1] + 1 if self.log else 0))
    @rule()
    def pass_the_last_marker(self) -> None:
        self.finished_runs.advance(self.next)
        self.read_to = self.next

    def unfinished(self) -> list[int]:
        return [o for o in self.log if o < self.read_to and o not in self.finished]

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.unfinished()), min_size=1, unique=True, max_size=6))
        position, fresh, runs = self.finished_runs.progress(some)
        foreseen = position, runs()
        for offset in some:
            self.finished_runs.finish(offset)
        self.finished.update(some)
        assert foreseen == (self.finished_runs.committable, self.finished_runs.runs)
        assert fresh == self.finished_runs.fresh
        with pytest.raises(InvariantViolated):
            self.finished_runs.finish(some[0])

    @rule()
    def write_a_checkpoint(self) -> None:
        self.told = self.finished_runs.runs
        self.finished_runs.tell(self.told)
        assert not self.finished_runs.fresh

    @rule()
    def crash(self) -> None:
        position = self.finished_runs.committable
        said = AckMap(7, tuple(self.finished_runs.fresh))
        found = ack_map.decode(ack_map.encode(said, position), position)
        assert found is not None
        self.finished_runs = FinishedRuns(position, united(found.runs, self.told, position), self.told)
        self.read_to = position

    @invariant()
    def map_and_checkpoint_tell_all_and_nothing_else(self) -> None:
        runs = [*self.finished_runs.fresh, *self.told]
        told = {offset for start, end in runs for offset in range(start, end)}
        above = {offset for offset in self.log if offset >= self.finished_runs.committable}
        assert told & above == self.finished & above

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.finished_runs.check()
        unfinished = self.unfinished()
        above = [o for o in self.log if o >= self.finished_runs.committable]
        assert all(self.finished_runs.finished(o) == (o in self.finished) for o in above)
        assert all(o in self.finished for o in self.log if o < self.finished_runs.committable)
        if unfinished:
            assert self.finished_runs.committable == unfinished[0]
        assert self.finished_runs.lowest(5) == unfinished[:5]

    @invariant()
    def a_run_holds_something_finished_and_so_does_each_gap(self) -> None:
        edges = [self.finished_runs.committable, *(edge for run in self.finished_runs.runs for edge in run)]
        for at, (low, high) in enumerate(pairwise(edges)):
            inside = [o for o in self.log if low <= o < high]
            assert any((o in self.finished) == bool(at % 2) for o in inside) or high > self.read_to


TestRetryBooks = RetryBooksMachine.TestCase
TestRetryBooks.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_marker_behind_each_record_costs_no_run() -> None:
    finished_runs = FinishedRuns(0)
    for offset in range(0, 3000, 3):
        finished_runs.receive(offset)
    assert finished_runs.run_count == 0
    for offset in range(3, 3000, 3):
        finished_runs.finish(offset)
    assert finished_runs.run_count == 1


def test_a_record_that_was_never_read_cannot_be_finished() -> None:
    with pytest.raises(InvariantViolated):
        FinishedRuns(5).finish(5)
