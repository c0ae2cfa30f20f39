"""What the books keep: nothing of what is finished, however long the log is."""

from __future__ import annotations

from kafka_pubsub.subscribe.partition.offsets import Offsets
from tests.support import FakeBody


def test_holes_leave_nothing_behind() -> None:
    """A hole after each record, as transactions of a record make them."""
    offsets = Offsets(0)
    for first in range(0, 40_000, 20):
        records = [FakeBody(offset=offset) for offset in range(first, first + 20, 2)]
        offsets.receive(records)
        offsets.finish(records)
    assert offsets.committable == 39_999
    assert not offsets.unfinished
    assert len(offsets._right) < 1_000


def test_the_sweep_keeps_the_holes_of_what_is_unfinished() -> None:
    offsets = Offsets(0)
    stuck = [FakeBody(offset=offset) for offset in (0, 2, 4)]
    offsets.receive(stuck)
    for first in range(6, 40_000, 2):
        record = FakeBody(offset=first)
        offsets.receive([record])
        offsets.finish([record])
    offsets.check()
    assert offsets.committable == 0
    assert offsets.runs() == [(6, 39_999)], "holes between neighbours cost nothing"


def test_a_hole_behind_a_known_run_costs_no_run() -> None:
    """The record behind the known run came last in its batch; then a hole, then the next batch."""
    offsets = Offsets(0, [(1, 2)])
    offsets.receive([FakeBody(offset=0), FakeBody(offset=2)])
    offsets.receive([FakeBody(offset=4)])
    assert offsets.runs() == [(1, 2)]
    offsets.check()
