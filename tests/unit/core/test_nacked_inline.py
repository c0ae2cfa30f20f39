"""What is nacked by the thread that read it: it moves at once, and its key's later messages wait behind it."""

from __future__ import annotations

from kafka_pubsub.core.effects import Deliver
from kafka_pubsub.core.events import Fetched, Passed, Release, Verdict
from kafka_pubsub.core.leases import Lease, LeaseState
from kafka_pubsub.core.retry_record import Why
from kafka_pubsub.core.rules import BACKLOG
from tests.support import FakeBody
from tests.unit.core.test_retry_scenes import Scene, infos


def walked(scene: Scene, *keys: bytes | None) -> Lease:
    """An inline lease of records with these keys."""
    records = [FakeBody(1, offset, key) for offset, key in enumerate(keys)]
    (effect,) = scene.do(Fetched(records, inline=True))
    assert isinstance(effect, Deliver)
    return effect.leases[0]


def left(lease: Lease, at: int, verdict: Verdict = Verdict.NACKED, delay: float | None = None) -> Release:
    record = lease.records[at]
    own = Lease(lease.partition, lease.epoch, record.key(), [record], 1)
    return Release(own, 0, verdict, delay, "ValueError: no")


def test_what_was_nacked_is_relocated_and_nobody_holds_it() -> None:
    scene = Scene()
    walk = walked(scene, b"a", b"b", None)
    some = [left(walk, 0, delay=3.0), left(walk, 2)]
    scene.do(Passed(walk, 3, some))
    assert not scene.partition.leases.active
    assert [release.lease.state for release in some] == [LeaseState.OVER, LeaseState.OVER]
    found = infos(scene.tick())
    assert [(info.origin, info.attempt, info.why) for info in found] == [
        (0, 2, Why.DELAYED),
        (2, 2, Why.NACKED),
    ]
    assert found[0].due == 3000
    assert {info.error for info in found} == {"ValueError: no"}


def test_later_messages_of_its_key_wait_behind_it() -> None:
    scene = Scene()
    walk = walked(scene, b"a", b"b", b"a", b"a")
    scene.do(Passed(walk, 3, [left(walk, 0)], [walk.records[2]]))
    assert scene.begun() == []
    scene.settle()
    (again,) = scene.begun()
    assert (again.records[0].offset(), again.attempt) == (0, 2)
    scene.ack(again)
    (behind,) = scene.begun()
    assert [record.offset() for record in behind.records] == [2, 3]


def test_more_of_them_than_may_wait_in_memory_move_behind_it() -> None:
    scene = Scene()
    walk = walked(scene, *[b"a"] * (BACKLOG + 2))
    scene.do(Passed(walk, len(walk.records), [left(walk, 0)], walk.records[1:]))
    assert [info.origin for info in infos(scene.tick())] == list(range(BACKLOG + 2))


def test_what_is_kept_beside_it_stays_with_its_holder() -> None:
    scene = Scene()
    walk = walked(scene, b"a", b"b")
    kept = left(walk, 1, Verdict.KEPT)
    scene.do(Passed(walk, 2, [left(walk, 0), kept]))
    assert scene.partition.leases.active == {kept.lease}
    assert kept.lease.state is LeaseState.KEPT
