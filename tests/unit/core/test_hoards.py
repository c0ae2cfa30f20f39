"""What waits in memory behind parked messages of many keys: it must not fill the window of all the others."""

from __future__ import annotations

from kafka_pubsub.core.chores import HOARD
from kafka_pubsub.core.effects import Relocate
from kafka_pubsub.core.retry_record import Why
from kafka_pubsub.core.rules import BACKLOG
from tests.unit.core.test_retry_scenes import Scene, infos, parked

FOR_AN_HOUR = 3_600_000


def behind(followers: int) -> Scene:
    """Keys that are parked for an hour, with one message each that waits behind it."""
    keys = [b"%d" % number for number in range(followers)]
    scene = Scene([parked(number, number, key, due=FOR_AN_HOUR) for number, key in enumerate(keys)])
    scene.fetch(*((followers + number, key) for number, key in enumerate(keys)))
    return scene


def test_a_hoard_moves_behind_what_it_waits_for() -> None:
    scene = behind(HOARD + 100)
    effects = scene.tick(0.1)
    moved = infos(effects)
    assert {info.why for info in moved} == {Why.BACKLOG}
    assert 100 < len(moved) < HOARD
    for effect in effects:
        if isinstance(effect, Relocate):
            scene.take(effect)
    scene.settle()
    assert len(scene.partition.offsets.unfinished) < HOARD
    scene.fetch((10**6, b"another"))
    assert [lease.key for lease in scene.begun()] == [b"another"]


def test_less_than_a_hoard_stays_in_memory() -> None:
    assert infos(behind(HOARD // 2).tick(0.1)) == []


def test_a_backlog_that_was_read_before_its_key_failed_moves_at_once() -> None:
    scene = Scene()
    scene.fetch(*((offset, b"k") for offset in range(BACKLOG + 2)))
    (lease,) = scene.begun()
    scene.nack(lease)
    moved = infos(scene.tick())
    assert [info.origin for info in moved] == [*range(BACKLOG + 2)]
    assert {info.why for info in moved[1:]} == {Why.BACKLOG}


def test_a_short_backlog_waits_in_memory_for_its_key() -> None:
    scene = Scene()
    scene.fetch(*((offset, b"k") for offset in range(BACKLOG)))
    (lease,) = scene.begun()
    scene.nack(lease)
    assert [info.origin for info in infos(scene.tick())] == [0]
