"""A wall clock that is wrong, and is set while a partition is owned: scenes of due times."""

from __future__ import annotations

import pytest

from kafka_pubsub.subscribe.formats.record import RETRY_HEADER, RetryInfo, Why, decode
from kafka_pubsub.subscribe.partition import next_move
from kafka_pubsub.subscribe.partition.effects import StoreMoves
from kafka_pubsub.subscribe.partition.events import (
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    RetryFetched,
    Tick,
)
from kafka_pubsub.subscribe.partition.settings import LONGEST_DELAY, Policy
from tests.unit.subscribe.partition.test_retry_partition import Scene, parked

HOUR = 3600.0
#: Seconds; longer than any policy of these scenes lets a message wait.
FAR = 40 * 86_400.0


def said(effect: StoreMoves) -> list[RetryInfo]:
    found = [decode(dict(record.headers)[RETRY_HEADER]) for record in effect.records]
    return [info for info in found if isinstance(info, RetryInfo)]


def begins_at(scene: Scene, *times: float) -> float | None:
    """The first of these times at which the key's message begins."""
    for time in times:
        scene.now = time
        scene.settle()
        if scene.begun():
            return time
    return None


def test_a_due_time_is_reported_by_the_wall_clock_as_it_is_now() -> None:
    scene = Scene(wall=HOUR)  # the clock was wrong when the partition was taken over
    scene.fetch((0, b"k"))
    (lease,) = scene.begun()
    scene.do(Tick(wall=0.0))  # and is right now
    scene.do(LeasesReported([LeaseReport(lease, 0, LeaseOutcome.NACKED, 2.0)]))
    (relocate,) = [effect for effect in scene.tick() if isinstance(effect, StoreMoves)]
    assert [(info.due, info.why) for info in said(relocate)] == [(2000, Why.DELAYED)]


def test_a_tick_that_knows_no_wall_clock_changes_nothing() -> None:
    scene = Scene(wall=HOUR)
    scene.fetch((0, b"k"))
    (lease,) = scene.begun()
    scene.do(Tick())
    scene.nack(lease)
    (relocate,) = [effect for effect in scene.tick() if isinstance(effect, StoreMoves)]
    assert [info.due for info in said(relocate)] == [(HOUR + 1) * 1000]


@pytest.mark.parametrize(
    ("why", "longest"),
    [
        (Why.NACKED, next_move.LATEST),
        (Why.EXPIRED, next_move.LATEST),
        (Why.CRASHED, next_move.LATEST),
        (Why.DELAYED, LONGEST_DELAY),
    ],
)
def test_nothing_waits_for_longer_than_the_policy_allows_or_a_delay_may_be(why: Why, longest: float) -> None:
    scene = Scene([parked(0, 0, due=int(FAR * 1000), why=why)])
    scene.fetch((1, b"other"))
    scene.ack(scene.begun()[0])
    assert begins_at(scene, longest - 3.0, longest + 3.0) == longest + 3.0


def test_a_delay_is_waited_for_whatever_the_policy_allows() -> None:
    scene = Scene([parked(0, 0, due=int(HOUR * 1000), why=Why.DELAYED)])
    scene.fetch((1, b"other"))
    scene.ack(scene.begun()[0])
    assert begins_at(scene, HOUR - 3.0, HOUR + 3.0) == HOUR + 3.0


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_clock_that_is_set_moves_nothing_that_was_read_before(step: float) -> None:
    scene = Scene([parked(0, 0, due=10_000), parked(1, 1, None, due=10_000)])
    scene.fetch((2, b"other"))
    scene.ack(scene.begun()[0])
    scene.do(Tick(wall=step))
    assert begins_at(scene, 7.0, 10.5) == 10.5


@pytest.mark.parametrize("key", [b"k", None])
@pytest.mark.parametrize("set_to", [0.0, 500.0])
def test_what_waits_for_its_time_is_released_whatever_clock_reported_that(
    key: bytes | None, set_to: float
) -> None:
    scene = Scene([parked(0, 0, key, attempt=4, due=int(FAR * 1000))], Policy(5))
    scene.fetch((1, b"other"))
    scene.do(Tick(wall=set_to))
    scene.retry.append(parked(1, 0, key, why=Why.RELEASE))
    scene.do(RetryFetched(scene.retry[1:]))
    scene.settle()
    begun = {lease.records[0].offset(): lease.attempt for lease in scene.begun()}
    assert begun == {0: 1, 1: 1}
    assert scene.partition._retry_partition.retries.releasing == {}


@pytest.mark.parametrize("key", [b"k", None])
def test_only_what_is_parked_for_ever_is_dropped(key: bytes | None) -> None:
    request = parked(1, 0, key, why=Why.DROP)
    scene = Scene([parked(0, 0, key, attempt=4, due=int(HOUR * 1000), why=Why.DELAYED), request], Policy(5))
    scene.settle()
    assert len(scene.retry) == 2
    assert scene.partition._retry_partition.retries.releasing == {}
