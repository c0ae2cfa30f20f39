"""A full map is emptied from the front of the log: what leaves it without room leaves with all that lies before it."""

from __future__ import annotations

import pytest

from kafka_pubsub.core import ack_map, moves
from kafka_pubsub.core.effects import Effect, Relocate
from kafka_pubsub.core.events import Relocated
from kafka_pubsub.model import Ending
from tests.unit.core.test_retry_scenes import Scene, parked

FOR_AN_HOUR = 3_600_000
#: What waits behind two parked keys in turn: moved key by key, every other one would stay.
FRONT = range(3, 15)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A map with room for three runs, and none of it left."""
    monkeypatch.setattr(ack_map, "CAPACITY", ack_map._OVERHEAD + 6)
    scene = Scene([parked(0, 0, b"p", due=FOR_AN_HOUR), parked(1, 1, b"q", due=FOR_AN_HOUR)])
    scene.fetch(*((offset, b"pq"[offset % 2 :][:1]) for offset in FRONT), (15, b"x"), (16, b"y"))
    x, _ = scene.begun()
    scene.ack(x)
    return scene


def flown(effects: list[Effect]) -> list[int]:
    """The origins that are moved now; the map beside them fits."""
    found = [effect for effect in effects if isinstance(effect, Relocate)]
    assert all(len(effect.commit.metadata) <= ack_map.CAPACITY - ack_map.NOTED for effect in found)
    return sorted(record.record.offset() for effect in found for record in effect.records)


def test_a_front_that_is_too_much_for_one_batch_goes_from_its_beginning(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "BATCH_BYTES", 6)
    effects = scene.tick()
    assert flown(effects) == [*FRONT][:6]
    for effect in effects:
        if isinstance(effect, Relocate):
            scene.take(effect)
    assert flown(scene.tick()) == [*FRONT][6:]


def test_what_lies_behind_a_refused_one_waits_for_it(scene: Scene) -> None:
    (relocation,) = (effect for effect in scene.tick() if isinstance(effect, Relocate))
    origins = [record.record.offset() for record in relocation.records]
    assert sorted(origins) == [*FRONT]
    scene.do(Relocated(Ending.ABORTED, {origins.index(8): "too large"}))
    effects = scene.tick(0.2)
    assert flown(effects) == [3, 4, 5, 6, 7]
    for effect in effects:
        if isinstance(effect, Relocate):
            scene.take(effect)
    scene.settle()
    assert next(iter(scene.partition.offsets.unfinished)) == 16
