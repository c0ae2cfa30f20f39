"""Records of the retry partition whose origin main doesn't have: told, kept, and they hold nobody up."""

from __future__ import annotations

import pytest

from kafka_pubsub.subscribe.formats.record import Why
from kafka_pubsub.subscribe.partition.effects import Announce
from kafka_pubsub.subscribe.partition.events import Fetched, RetryFetched
from kafka_pubsub.subscribe.partition.settings import Exhausted, LogStart, Policy
from tests.support import FakeBody
from tests.unit.subscribe.partition.test_retry_partition import Scene, Stored, parked

UNREADABLE_AT_ONCE = Policy(5)


def offsets(scene: Scene) -> list[int]:
    """What is handed out, by origin."""
    return [record.offset() for lease in scene.begun() for record in lease.records]


def buried(scene: Scene) -> list[dict[str, bytes | None]]:
    """The headers of the dead letters that are written next."""
    return [dict(dead_letter.headers) for dead_letter in scene.dead_letters()]


@pytest.mark.parametrize("key", [b"k", None], ids=["key", "no key"])
def test_an_origin_beyond_mains_end_is_dead_lettered_as_it_is(key: bytes | None) -> None:
    scene = Scene([parked(0, 5, key)], UNREADABLE_AT_ONCE, home=LogStart(0, end=5))
    scene.fetch((4, key))
    assert offsets(scene) == [4], "it holds nobody up"
    (dead_letter,) = buried(scene)
    assert dead_letter["ps-retry"] == dict(parked(0, 5, key).headers() or ())["ps-retry"]
    assert (
        dead_letter["ps-dead-reason"]
        == b"its origin, offset 5, lies beyond offset 5, up to which partition 0 of t is known"
    )
    scene.store_dead_letter()
    assert scene.partition._retry_partition.retries.finished_runs.committable == len(scene.retry)


def test_without_dead_letters_it_stays_is_reported_and_holds_nobody_up() -> None:
    scene = Scene(home=LogStart(0, end=3))
    scene.do(RetryFetched([parked(0, 3)]))
    scene.fetch((1, b"k"))
    (told,) = [effect.detail for effect in scene.tick() if isinstance(effect, Announce)]
    assert (
        told == "offset 0: its origin, offset 3, lies beyond offset 3, up to which partition 0 of t is known"
    )
    scene.settle()
    assert offsets(scene) == [1]
    assert scene.partition._retry_partition.retries.finished_runs.committable == 0


def test_a_record_of_a_key_that_is_parked_already_is_judged_too() -> None:
    scene = Scene([parked(0, 2), parked(1, 9), parked(2, 3)], home=LogStart(0, end=4))
    scene.fetch((6, b"k"), (12, b"k"))
    order = []
    for _ in range(9):
        scene.settle()
        for lease in scene.begun():
            order += [record.offset() for record in lease.records]
            scene.ack(lease)
    assert order == [2, 3, 6, 12]


def test_what_has_been_read_since_the_assignment_exists() -> None:
    scene = Scene(home=LogStart(0, end=4))
    scene.fetch((5, b"other"))
    scene.do(RetryFetched([parked(0, 5, why=Why.REPLAYED), parked(1, 6, why=Why.REPLAYED)]))
    scene.settle()
    assert set(offsets(scene)) == {5}


def test_the_last_message_at_the_assignment_may_wait_there_before_it_is_read() -> None:
    scene = Scene([parked(0, 3)], UNREADABLE_AT_ONCE, home=LogStart(0, end=4))
    assert (offsets(scene), buried(scene)) == ([], [])
    scene.fetch((3, b"other"))
    scene.settle()
    assert 3 in offsets(scene)


@pytest.mark.parametrize(
    "policy", [UNREADABLE_AT_ONCE, Policy(5, Exhausted.PARK)], ids=["dead letters", "parked"]
)
def test_what_was_reported_stays_unreadable_though_main_comes_to_its_origin(policy: Policy) -> None:
    scene = Scene(policy=policy, home=LogStart(0, end=3))
    scene.do(RetryFetched([parked(0, 3)]))
    scene.do(Fetched([FakeBody(1, 3, b"k")]))
    assert offsets(scene) == [3], "the message itself"
    (dead_letter,) = buried(scene)
    assert dead_letter["ps-dead-reason"] == b"its origin, offset 3, wasn't known when it was read"


def test_a_request_for_what_does_not_exist_is_done_with() -> None:
    scene = Scene([parked(0, 9, why=Why.RELEASE)], UNREADABLE_AT_ONCE, home=LogStart(0, end=3))
    assert buried(scene) == []
    assert scene.partition._retry_partition.retries.finished_runs.committable == len(scene.retry)


def test_an_unreadable_record_is_dead_lettered_too_where_used_up_messages_are_parked() -> None:
    scene = Scene([Stored(0, b"k", [("ps-retry", b"rubbish")])], Policy(5, Exhausted.PARK))
    (dead_letter,) = buried(scene)
    assert dead_letter["ps-retry"] == b"rubbish"
