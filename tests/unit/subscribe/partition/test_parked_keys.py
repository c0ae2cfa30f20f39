"""A command's requests to an owner: releases, drops and replays, told in turn."""

from __future__ import annotations

from kafka_pubsub.subscribe.formats import record as retry_record
from kafka_pubsub.subscribe.formats.record import FOREVER, RetryRecord, Why
from kafka_pubsub.subscribe.partition.effects import StoreMoves
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport, LeasesReported, RetryFetched
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.settings import Exhausted, Policy
from tests.unit.subscribe.partition.test_retry_partition import TOPIC_ID, Scene, parked


def ack(scene: Scene, lease: Lease) -> None:
    scene.do(LeasesReported([LeaseReport(lease, len(lease.records), LeaseOutcome.FINISHED)]))


def test_one_request_releases_once_however_fast_the_message_is_parked_again() -> None:
    scene = Scene(
        [parked(0, 3, attempt=6, due=FOREVER, why=Why.EXHAUSTED), parked(1, 3, why=Why.RELEASE)],
        Policy(5, Exhausted.PARK),
    )
    scene.fetch((6, b"other"))
    for _ in range(12):  # no look between move result, failing and moving again
        for effect in scene.tick():
            if isinstance(effect, StoreMoves):
                scene.take(effect)
        for lease in scene.begun():
            if lease.key == b"k":
                scene.nack(lease)
    last = retry_record.read(scene.retry[-1], "t", TOPIC_ID, 0)
    assert isinstance(last, RetryRecord)
    assert (last.info.why, last.info.attempt) == (Why.EXHAUSTED, 5)
    scene.settle()
    assert len(scene.retry) == 2 + 1 + 5, "released again without being asked"
    assert scene.partition._retry_partition.retries.releasing == {}


def test_what_is_parked_for_ever_can_be_dropped_to_the_dead_letters() -> None:
    scene = Scene(
        [parked(0, 3, attempt=5, due=FOREVER, why=Why.EXHAUSTED), parked(1, 3, why=Why.DROP)],
        Policy(5, Exhausted.PARK),
    )
    scene.fetch((6, b"k"))
    (dead_letter,) = scene.dead_letters()
    headers = dict(dead_letter.headers)
    assert (headers["ps-dead-offset"], headers["ps-dead-attempts"]) == (b"3", b"5")
    assert scene.begun() == []
    scene.store_dead_letter()
    assert [lease.records[0].offset() for lease in scene.begun()] == [6]


def test_without_dead_letters_nothing_is_dropped() -> None:
    scene = Scene([parked(0, 3, attempt=5, due=FOREVER, why=Why.EXHAUSTED), parked(1, 3, why=Why.DROP)])
    scene.settle()
    assert len(scene.retry) == 2
    assert scene.partition._retry_partition.retries.releasing == {}


def test_a_replayed_message_goes_before_what_waits_of_its_key_and_after_what_is_with_its_callback() -> None:
    scene = Scene([parked(0, 5, attempt=2)])
    scene.fetch((9, b"k"))
    (lease,) = scene.begun()
    assert lease.records[0].offset() == 5
    scene.retry.append(parked(1, 4, why=Why.REPLAYED))
    scene.retry.append(parked(2, 3, why=Why.REPLAYED))
    scene.do(RetryFetched(scene.retry[1:]))
    assert scene.begun() == [], "beside the handler of its key"
    scene.nack(lease)
    scene.settle()
    seen = []
    for _ in range(4):
        scene.settle()
        for each in scene.begun():
            seen += [record.offset() for record in each.records]
            ack(scene, each)
        scene.now += 1
    assert seen == [3, 4, 5, 9]
