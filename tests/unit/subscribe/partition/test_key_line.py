"""What nacks cost: records that are finished together, and the only message of a parked key."""

from __future__ import annotations

import pytest

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.subscribe.partition.finished_runs import FinishedRuns
from kafka_pubsub.subscribe.partition.key_line import Entry
from kafka_pubsub.subscribe.partition.packed_lines import PackedLines


class Counted(FinishedRuns):
    """Counts how often a run is changed."""

    changes = 0

    def _mark(self, low: int, high: int) -> None:
        self.changes += 1
        super()._mark(low, high)


def test_neighbours_are_finished_together() -> None:
    finished_runs = Counted(0)
    for offset in range(100):
        finished_runs.receive(offset)
    before = finished_runs.changes
    finished_runs.finish_all([*range(60, 80), *range(30, 10, -1)])
    assert finished_runs.runs == [(11, 31), (60, 80)]
    assert finished_runs.changes == before + 2
    assert finished_runs.done == 40


@pytest.mark.parametrize("offsets", [[4, 5, 6], [4, 4], [1], [8, 9], [2, 3, 4, 5]])
def test_nothing_is_finished_twice_nor_before_it_was_read(offsets: list[int]) -> None:
    finished_runs = FinishedRuns(2)
    for offset in range(2, 9):
        finished_runs.receive(offset)
    finished_runs.finish(5)
    with pytest.raises(InvariantViolated):
        finished_runs.finish_all(offsets)


def test_the_only_entry_of_a_key_is_taken_and_several_are_left() -> None:
    lines = PackedLines()
    lines.add(b"a", Entry(3, 0))
    lines.add(b"b", Entry(4, 1))
    lines.add(b"b", Entry(5, 2))
    assert lines.take_only(b"a")
    assert not lines.take_only(b"b")
    assert not lines.take_only(b"a")
    assert (lines.count(b"a"), lines.count(b"b")) == (0, 2)
