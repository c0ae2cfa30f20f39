"""Nacks of the thread that reads: the message moves at once, and its key's later messages wait behind it."""

from __future__ import annotations

from kafka_pubsub.subscribe.formats.record import RetryInfo, Why, attempt_of
from kafka_pubsub.subscribe.partition.effects import Deliver
from kafka_pubsub.subscribe.partition.events import (
    Demand,
    Fetched,
    LeaseOutcome,
    LeaseReport,
    Nacked,
    Passed,
    Settled,
)
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState, Settlement
from kafka_pubsub.subscribe.partition.settings import BACKLOG
from tests.support import FakeBody
from tests.unit.subscribe.partition.test_retry_partition import TOPIC_ID, Scene, infos, parked, stored


def record_inline(scene: Scene, *keys: bytes | None) -> Lease:
    """An inline lease of records with these keys."""
    records = [FakeBody(1, offset, key) for offset, key in enumerate(keys)]
    (effect,) = scene.do(Fetched(records, inline=True))
    assert isinstance(effect, Deliver)
    return effect.leases[0]


def kept(lease: Lease, at: int) -> LeaseReport:
    record = lease.records[at]
    return LeaseReport(lease.of_one(record, record.key()), 0, LeaseOutcome.KEPT)


def nacked(lease: Lease, *some: int, delay: float | None = None) -> list[Nacked]:
    return [(lease.records[at], delay, "ValueError: no") for at in some]


def due(scene: Scene, limit: int = 9) -> Lease:
    """The inline lease of what is due."""
    (effect,) = scene.do(Demand(limit, 9, inline=True))
    assert isinstance(effect, Deliver)
    assert effect.inline
    (lease,) = effect.leases
    return lease


def offsets(lease: Lease) -> list[int]:
    return [record.offset() for record in lease.records]


def waiting_behind(*keys: bytes) -> tuple[Scene, Lease]:
    """The first message of each key was nacked and is due; another of each key waits behind it, in main."""
    scene = Scene()
    walk = record_inline(scene, *keys, *keys)
    count = len(keys)
    scene.do(Passed(walk, 2 * count, (), walk.records[count:], False, nacked(walk, *range(count))))
    scene.settle()
    return scene, due(scene)


def test_what_was_nacked_is_moved_and_nobody_holds_it() -> None:
    scene = Scene()
    walk = record_inline(scene, b"a", b"b", None)
    scene.do(Passed(walk, 3, nacked=[*nacked(walk, 0, delay=3.0), *nacked(walk, 2)]))
    assert not scene.partition._leases.active
    found = infos(scene.tick())
    assert [(info.origin, info.attempt, info.why) for info in found] == [
        (0, 2, Why.DELAYED),
        (2, 2, Why.NACKED),
    ]
    assert found[0].due == 3000
    assert {info.error for info in found} == {"ValueError: no"}


def test_later_messages_of_its_key_wait_behind_it() -> None:
    scene = Scene()
    walk = record_inline(scene, b"a", b"b", b"a", b"a")
    scene.do(Passed(walk, 3, skipped=[walk.records[2]], nacked=nacked(walk, 0)))
    assert scene.begun() == []
    scene.settle()
    (again,) = scene.begun()
    assert (again.records[0].offset(), again.attempt) == (0, 2)
    scene.ack(again)
    (behind,) = scene.begun()
    assert [record.offset() for record in behind.records] == [2, 3]


def test_more_of_them_than_may_wait_in_memory_move_behind_it() -> None:
    scene = Scene()
    walk = record_inline(scene, *[b"a"] * (BACKLOG + 2))
    scene.do(Passed(walk, len(walk.records), skipped=walk.records[1:], nacked=nacked(walk, 0)))
    assert [info.origin for info in infos(scene.tick())] == list(range(BACKLOG + 2))


def test_what_is_kept_beside_it_stays_with_its_lease_runner() -> None:
    scene = Scene()
    walk = record_inline(scene, b"a", b"b")
    release = kept(walk, 1)
    scene.do(Passed(walk, 2, [release], nacked=nacked(walk, 0)))
    assert scene.partition._leases.active == {release.lease}
    assert release.lease.state is LeaseState.KEPT


# What is due, taken by the thread that reads


def test_what_is_due_is_one_lease_of_many_keys_with_what_waits_behind() -> None:
    scene, lease = waiting_behind(b"a", b"b", b"c")
    assert offsets(lease) == [0, 1, 2, 3, 4, 5]
    assert [attempt_of(record) for record in lease.records] == [2, 2, 2, 1, 1, 1]
    assert scene.begun() == [], "nobody else gets these keys"
    scene.do(Passed(lease, 6))
    assert not scene.partition._offsets.unfinished
    assert not scene.partition._queues.queues, "the keys are like any others again"
    assert not scene.partition._retry_partition.retries.parking.lines


def test_of_a_key_that_fails_again_the_others_wait_again() -> None:
    scene, lease = waiting_behind(b"a", b"b")
    scene.do(Passed(lease, 4, (), [lease.records[2]], False, nacked(lease, 0)))
    assert scene.begun() == []
    scene.settle()
    again = due(scene)
    assert offsets(again) == [0, 2]
    assert attempt_of(again.records[0]) == 3


def test_what_is_kept_of_what_was_due_keeps_its_key() -> None:
    scene, lease = waiting_behind(b"a", b"b")
    release = kept(lease, 0)
    scene.do(Passed(lease, 4, [release], [lease.records[2]]))
    assert scene.partition._leases.active == {release.lease}
    assert scene.begun() == []
    scene.do(Settled([Settlement(release.lease, 0, acked=True)]))
    assert [offsets(each) for each in scene.begun()] == [[2]]


def test_a_take_over_in_the_middle_gives_back_what_had_not_begun() -> None:
    scene, lease = waiting_behind(b"a", b"b", b"c")
    scene.do(Passed(lease, 1, current=True))
    assert (lease.key, offsets(lease), lease.attempt) == (b"b", [1], 2)
    assert [(each.key, offsets(each), each.attempt) for each in scene.begun()] == [
        (b"c", [2], 2),
        (b"a", [3], 1),
    ]
    scene.ack(lease)
    assert [offsets(each) for each in scene.begun()] == [[4]]


def test_a_take_over_before_anything_began_gives_back_all() -> None:
    scene, lease = waiting_behind(b"a", b"b")
    scene.do(Passed(lease, 0))
    assert [(each.key, offsets(each)) for each in scene.begun()] == [(b"a", [0]), (b"b", [1])]


def test_what_crashed_before_is_not_taken_inline() -> None:
    crashed = stored(0, b"a", RetryInfo(TOPIC_ID, 0, 0, crashes=1, why=Why.CRASHED))
    scene = Scene([crashed, parked(1, 1, b"b")])
    scene.fetch((2, b"c"))
    scene.settle()
    effects = scene.do(Demand(9, 9, inline=True))
    assert not any(isinstance(effect, Deliver) and effect.inline for effect in effects)


def test_the_lease_of_what_is_due_is_one_of_those_that_are_wanted() -> None:
    scene = Scene()
    walk = record_inline(scene, b"a", b"b")
    scene.do(Passed(walk, 2, (), (), False, nacked(walk, 0, 1)))
    scene.settle()
    scene.fetch((2, b"c"))
    assert offsets(due(scene, limit=1)) == [0, 1]
    assert [offsets(each) for each in scene.begun(1)] == [[2]]
