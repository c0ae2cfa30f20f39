"""The figures of several processes, put together by their parent."""

from __future__ import annotations

import socket
from pathlib import Path

from kafka_pubsub.counters import Reading
from kafka_pubsub.observe.workers import PATIENCE, Answering, Sums


def value(readings: list[Reading], field: str) -> float:
    (found,) = [each for each in readings if field in each.counts or field in each.gauges]
    return {**found.counts, **found.gauges}[field]


def answers(count: int, lag: int) -> list[Reading]:
    return [
        Reading(
            {"topic": "orders", "subscription": "billing"}, {"acked": count}, {"lag": lag, "in_flight": 1}
        )
    ]


def test_counters_add_up_and_of_what_kafka_knows_the_highest_counts(tmp_path: Path) -> None:
    places = {1: str(tmp_path / "1"), 2: str(tmp_path / "2")}
    with Answering(places[1], lambda: answers(3, 10)), Answering(places[2], lambda: answers(4, 12)):
        found = Sums(lambda: places).read()
    assert value(found, "acked") == 7
    assert value(found, "in_flight") == 2
    assert value(found, "lag") == 12
    assert value(found, "silent_workers") == 0


def test_what_a_process_had_counted_that_has_ended_stays(tmp_path: Path) -> None:
    places = {1: str(tmp_path / "1")}
    sums = Sums(lambda: places)
    with Answering(places[1], lambda: answers(3, 10)):
        sums.read()
    places.clear()
    places[2] = str(tmp_path / "2")
    with Answering(places[2], lambda: answers(4, 1)):
        found = sums.read()
    assert value(found, "acked") == 7
    assert value(found, "lag") == 1


def test_a_process_that_does_not_answer_counts_as_before_and_is_told(tmp_path: Path) -> None:
    assert PATIENCE <= 1
    places = {1: str(tmp_path / "1")}
    sums = Sums(lambda: places)
    with Answering(places[1], lambda: answers(3, 10)):
        sums.read()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(places[1])
        hanging.listen(1)
        found = sums.read()
    assert value(found, "acked") == 3
    assert value(found, "silent_workers") == 1
