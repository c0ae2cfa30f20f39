"""Messages that wait in memory behind parked messages of many keys must not fill the window of all the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub.subscribe.formats.record import RetryInfo, Why
from kafka_pubsub.subscribe.partition.effects import CommitBoth, Deliver, ReadBodies, StoreMoves
from kafka_pubsub.subscribe.partition.events import (
    Bodies,
    CommitAnswered,
    Demand,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    Tick,
)
from kafka_pubsub.subscribe.partition.maintenance import LOOK, LOOK_EACH, MOST_WAITING, SOON
from kafka_pubsub.subscribe.partition.moves import Move
from kafka_pubsub.subscribe.partition.packed_lines import PackedLines
from kafka_pubsub.subscribe.partition.settings import BACKLOG
from tests.unit.subscribe.partition.test_retry_partition import Scene, infos, parked

FOR_AN_HOUR = 3_600_000


def behind(followers: int) -> Scene:
    """Keys that are parked for an hour, each with a single message that waits behind the parked message."""
    keys = [b"%d" % number for number in range(followers)]
    scene = Scene([parked(number, number, key, due=FOR_AN_HOUR) for number, key in enumerate(keys)])
    scene.fetch(*((followers + number, key) for number, key in enumerate(keys)))
    return scene


def test_a_backlog_moves_behind_what_it_waits_for() -> None:
    scene = behind(MOST_WAITING + 100)
    effects = scene.tick(0.1)
    moved = infos(effects)
    assert {info.why for info in moved} == {Why.BACKLOG}
    assert 100 < len(moved) < MOST_WAITING
    for effect in effects:
        if isinstance(effect, StoreMoves):
            scene.take(effect)
    scene.settle()
    assert len(scene.partition._offsets.unfinished) < MOST_WAITING
    scene.fetch((10**6, b"another"))
    assert [lease.key for lease in scene.begun()] == [b"another"]


def test_the_more_keys_wait_the_rarer_they_are_looked_at() -> None:
    scene = behind(3 * MOST_WAITING)
    assert infos(scene.tick(0.1))
    scene.tick(2 * LOOK)
    assert waiting(scene) == [], "a look at so many keys isn't due yet"
    scene.tick(LOOK_EACH * 3 * MOST_WAITING)
    assert waiting(scene) != []


def test_less_than_a_backlog_stays_in_memory() -> None:
    assert infos(behind(MOST_WAITING // 2).tick(0.1)) == []


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


def wait(scene: Scene, seconds: float, *, stuffed: bool) -> list[RetryInfo]:
    """What moves while time goes by in the steps in which somebody looks."""
    moved: list[RetryInfo] = []
    until = scene.now + seconds
    while scene.now < until:
        scene.now += LOOK
        moved += infos(scene.do(Tick(stuffed=stuffed)))
    return moved


def waiting(scene: Scene) -> list[Move]:
    """What has left its queue and goes with the next transaction."""
    half = scene.partition._retry_partition
    return half.retries.moves.waiting


def fail_all(scene: Scene) -> None:
    """All main messages that may begin fail."""
    begun = scene.begun(50)
    assert not any(lease.entries for lease in begun)
    scene.do(LeasesReported([LeaseReport(lease, 0, LeaseOutcome.NACKED, 0.1) for lease in begun]))


def failing(keys: int, followers: int) -> Scene:
    """Keys that have just failed and go again at once, but for a log that is slow; and what waits behind them."""
    scene = Scene()
    names = [b"%d" % number for number in range(keys)]
    scene.fetch(*((offset, None) for offset in range(1000)))
    scene.do(
        LeasesReported([LeaseReport(lease, 1, LeaseOutcome.FINISHED) for lease in scene.begun(1000)])
    )  # most don't fail
    scene.fetch(*enumerate(names, 1000))
    fail_all(scene)
    scene.fetch(*((1000 + keys + number, names[number % keys]) for number in range(followers)))
    return scene


@pytest.mark.parametrize("stuffed", [False, True])
def test_what_goes_on_soon_is_waited_for(stuffed: bool) -> None:
    """Relocated the message would hold its key for longer than the backoff, and more would have to follow."""
    scene = failing(50, MOST_WAITING + 200)
    assert {info.why for info in wait(scene, 0.6 * SOON, stuffed=stuffed)} == {Why.DELAYED}
    assert waiting(scene) == []
    assert wait(scene, SOON, stuffed=stuffed) == [], "that transaction hasn't been answered"
    assert waiting(scene) != [], "it isn't waited for in vain"


def test_a_key_that_is_parked_anew_is_waited_for_anew() -> None:
    scene = failing(50, MOST_WAITING + 200)
    (move_request,) = [effect for effect in scene.tick(LOOK) if isinstance(effect, StoreMoves)]
    scene.take(move_request)
    assert wait(scene, 0.5 * SOON, stuffed=False) == []
    again = scene.begun(50)
    assert len(again) == 50
    assert all(lease.entries for lease in again)
    scene.do(LeasesReported([LeaseReport(lease, 1, LeaseOutcome.FINISHED) for lease in again]))
    fail_all(scene)
    assert {info.why for info in wait(scene, 0.8 * SOON, stuffed=False)} == {Why.DELAYED}
    assert waiting(scene) == []
    wait(scene, 0.5 * SOON, stuffed=False)
    assert waiting(scene) != []


def draining(keys: int, entries: int, followers: int) -> Scene:
    """Keys of which many messages wait in the retry partition, due since long, and what waits behind them in memory."""
    names = [b"%d" % number for number in range(keys)]
    count = keys * entries
    scene = Scene([parked(at, at, names[at % keys], why=Why.BACKLOG) for at in range(count)])
    scene.fetch(*((count + number, names[number % keys]) for number in range(followers)))
    return scene


def answer(scene: Scene, seconds: float, acked: int) -> list[RetryInfo]:
    """What moves while bodies are read and, at each look, the next message of so many keys is acked."""
    moved: list[RetryInfo] = []
    until = scene.now + seconds
    while scene.now < until:
        scene.now += LOOK
        effects = scene.do(Tick())
        moved += infos(effects)
        for effect in effects:
            if isinstance(effect, ReadBodies):
                scene.do(Bodies([scene.retry[offset] for offset in effect.offsets]))
            elif isinstance(effect, CommitBoth):
                scene.do(CommitAnswered(True))
        for _ in range(acked):
            begun = scene.do(Demand(1, 1))
            for lease in [lease for each in begun if isinstance(each, Deliver) for lease in each.leases]:
                scene.ack(lease)
    return moved


def test_keys_that_work_off_what_is_parked_are_waited_for_however_long_that_takes() -> None:
    """Else what is read meanwhile goes the same long way, its key waits for that, and so on without end."""
    scene = draining(15, 40, MOST_WAITING + 100)
    assert answer(scene, 2.5 * SOON, acked=15) == []
    assert waiting(scene) == []


def test_keys_that_stop_working_off_what_is_parked_are_not_waited_for() -> None:
    scene = draining(15, 40, MOST_WAITING + 100)
    answer(scene, SOON, acked=15)
    assert {info.why for info in answer(scene, 2 * SOON, acked=0)} == {Why.BACKLOG}


class Unsearchable(PackedLines):
    """Lines that may be looked up, and not gone through."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("all parked keys were looked at")

    items = values = keys = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize("stuffed", [False, True])
def test_only_parked_keys_with_a_backlog_are_looked_at(stuffed: bool) -> None:
    """An outage parks a key a message; that must not make each look longer."""
    keys = [b"%d" % number for number in range(5000)]
    scene = Scene([parked(number, number, key, due=FOR_AN_HOUR) for number, key in enumerate(keys)])
    scene.fetch(*((5000 + number, keys[number % 100]) for number in range(MOST_WAITING + 5)))
    half = scene.partition._retry_partition
    assert half is not None
    parking = half.retries.parking
    parking.lines.__class__ = Unsearchable
    effects = scene.partition.handle(Tick(stuffed=stuffed), scene.now + LOOK)
    assert {info.why for info in infos(list(effects))} == {Why.BACKLOG}
    assert len(parking.backlogged) == 100
    parking.lines.__class__ = PackedLines
    scene.partition.check()
