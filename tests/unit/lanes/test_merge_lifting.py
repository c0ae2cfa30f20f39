"""Lifting: a message for which a message of a higher priority waits goes with that priority."""

from __future__ import annotations

from kafka_pubsub.lanes.merge import Choice
from kafka_pubsub.lanes.read_ahead import Lift
from tests.unit.lanes.test_merge import DURABLE, HIGH, LOW, Scene


def test_a_lifted_message_goes_behind_the_priority_that_waits_for_it_and_before_lower_ones() -> None:
    scene = Scene([HIGH, DURABLE, LOW])
    for number in range(4):
        scene.publish(LOW, 0, number)
    scene.publish(DURABLE, 1, 10)
    scene.publish(HIGH, 2, 11)
    for lane in (HIGH, DURABLE, LOW):
        scene.fetch(lane)
    scene.merge.offer(LOW, 0, Lift(HIGH.priority, 2, b"k"))
    choice = scene.next()
    assert choice is not None
    assert (choice.lane, choice.key) == (HIGH, None)
    scene.merge.took([0], scene.now)
    assert scene.next() == Choice(LOW, 1, 3, key=b"k")
    scene.merge.took([2], scene.now)
    scene.merge.offer(LOW, 0)
    choice = scene.next()
    assert choice is not None
    assert choice.lane == DURABLE


def test_a_lifted_message_waits_until_no_higher_one_can_have_come_in_before_it() -> None:
    scene = Scene([HIGH, DURABLE, LOW])
    scene.publish(DURABLE, 0, 1)
    scene.fetch(DURABLE)
    scene.learn_ends()
    scene.publish(LOW, 1, 2)
    scene.fetch(LOW)
    scene.merge.offer(LOW, 0, Lift(HIGH.priority, 0, b"k"))
    assert scene.merge.next(scene.now) is None
    scene.publish(HIGH, 0, 3)
    choice = scene.next()
    assert choice is not None
    assert choice.lane == HIGH


def test_lifted_messages_do_not_end_the_wait_of_their_lane() -> None:
    scene = Scene([HIGH, DURABLE, LOW])
    for number in range(10):
        scene.publish(LOW, 0, number)
    scene.publish(DURABLE, 0, 20)
    scene.fetch(LOW)
    scene.fetch(DURABLE)
    for offset in range(1, 4):
        scene.merge.offer(LOW, 0, Lift(HIGH.priority, offset, b"k"))
        assert scene.next() == Choice(LOW, 1, offset + 1, key=b"k")
        scene.merge.took([offset], scene.now)
        scene.now += 2.0
    scene.merge.offer(LOW, 0)
    choice = scene.next()
    assert choice is not None
    assert choice == Choice(LOW, 1, 1, aged=True)
