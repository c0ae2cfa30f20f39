"""`max_attempts` of 1: a message's first failure is its last, whatever else fails meanwhile."""

from __future__ import annotations

import pytest

from kafka_pubsub.subscribe.formats.record import FOREVER, Why
from kafka_pubsub.subscribe.partition.settings import Exhausted, Policy
from tests.unit.subscribe.partition.test_retry_partition import Scene, infos


def failing(policy: Policy, *, outage: bool) -> Scene:
    """A scene in which a message of the home topic has failed once."""
    scene = Scene(policy=policy)
    scene.fetch((9, b"k"))
    (lease,) = scene.begun()
    scene.partition._retry_partition.retries.outage.probing = outage
    scene.nack(lease)
    return scene


@pytest.mark.parametrize("outage", [False, True])
def test_a_message_with_one_attempt_dies_of_its_first_failure(outage: bool) -> None:
    scene = failing(Policy(1), outage=outage)
    (dead_letter,) = scene.dead_letters()
    headers = dict(dead_letter.headers)
    assert dead_letter.dead
    assert (headers["ps-dead-offset"], headers["ps-dead-attempts"]) == (b"9", b"1")
    scene.store_dead_letter()
    scene.now += 10**6
    scene.settle()
    assert scene.begun() == []


@pytest.mark.parametrize("outage", [False, True])
def test_a_message_with_one_attempt_is_parked_by_its_first_failure(outage: bool) -> None:
    (info,) = infos(failing(Policy(1, Exhausted.PARK), outage=outage).tick())
    assert (info.why, info.due) == (Why.EXHAUSTED, FOREVER)


def test_of_several_attempts_none_is_the_last_in_an_outage() -> None:
    (info,) = infos(failing(Policy(2), outage=True).tick())
    assert (info.why, info.attempt) == (Why.NACKED, 2)
