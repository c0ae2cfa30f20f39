"""The same trouble is reported once in a while."""

from __future__ import annotations

from kafka_pubsub.log.kafka.reader_errors import Throttle


def test_the_same_trouble_is_reported_again_after_a_while_and_another_at_once() -> None:
    now = 0.0
    throttle = Throttle(1.0, lambda: now)
    assert throttle.admit("a")
    assert throttle.admit("b")
    now = 0.9
    assert not throttle.admit("a")
    assert throttle.admit("a", always=True)
    now = 1.8
    assert not throttle.admit("a"), "it was reported 0.9 s ago"
    assert throttle.admit("b")
