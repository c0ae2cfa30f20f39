"""A partition that comes back, or whose process stood still: what lets its handlers begin again."""

from __future__ import annotations

import pytest

from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.formats.notes import Doubt
from kafka_pubsub.subscribe.partition.effects import CommitBoth, StoreMoves
from kafka_pubsub.subscribe.partition.events import CommitAnswered, MovesAnswered, Returned
from tests.unit.subscribe.partition.test_retry_partition import HOME, Scene, leases_of


@pytest.mark.parametrize("moves", [True, False])
def test_only_a_commit_that_was_made_after_the_return_lets_callbacks_begin(moves: bool) -> None:
    """A commit that was in flight then, plain or with a transaction, doesn't tell that the partition is still ours."""
    scene = Scene()
    scene.fetch((0, b"a"), (1, b"b"))
    (first, second) = scene.begun()
    (scene.nack if moves else scene.ack)(first)
    (old,) = scene.tick()
    assert isinstance(old, StoreMoves if moves else CommitBoth)
    scene.do(Returned())
    scene.ack(second)
    scene.fetch((2, b"c"))
    assert not leases_of(scene.do(MovesAnswered(Ending.STORED) if moves else CommitAnswered(True)))
    assert not scene.begun()
    assert any(isinstance(effect, CommitBoth) for effect in scene.tick())
    scene.do(CommitAnswered(True))
    assert [lease.key for lease in scene.begun()] == [b"c"]


@pytest.mark.parametrize("moves", [True, False])
def test_a_callback_that_waited_for_a_note_waits_for_one_that_was_made_after_the_return(moves: bool) -> None:
    scene = Scene(home=HOME._replace(doubt=Doubt(10, twice=True)))  # two owners have died
    scene.fetch((0, b"a"), (1, b"b"))
    scene.begun()
    scene.tick()
    noted, *_ = leases_of(scene.do(CommitAnswered(True)))
    if moves:
        scene.nack(noted)
    scene.fetch((2, b"c"))
    scene.begun()
    assert any(isinstance(effect, StoreMoves if moves else CommitBoth) for effect in scene.tick(0.3))
    scene.do(Returned())
    assert not leases_of(scene.do(MovesAnswered(Ending.STORED) if moves else CommitAnswered(True)))
    assert any(isinstance(effect, CommitBoth) for effect in scene.tick())
    assert [lease.key for lease in leases_of(scene.do(CommitAnswered(True)))] == [b"c"]
