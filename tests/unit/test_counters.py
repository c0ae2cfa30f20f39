"""What parts count stays when they end, is added up, and one part that fails takes nothing with it."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_pubsub.counters import BOUNDS, Parts, Reading, Times, merged
from kafka_pubsub.log.clocks import Durations


class Counting:
    """A part that has counted something."""

    def __init__(self, count: int, labels: dict[str, str] | None = None) -> None:
        self.count, self.labels = count, labels or {"topic": "orders"}
        self.durations = Durations()

    def readings(self) -> Iterator[Reading]:
        yield Reading(
            self.labels, {"published": self.count}, {"waiting": 1}, {"publish": self.durations.times()}
        )


class Broken(Counting):
    """A part that can't be read."""

    def readings(self) -> Iterator[Reading]:
        raise RuntimeError("dictionary changed size during iteration")


def test_a_run_of_messages_counts_once_in_the_range_of_its_mean() -> None:
    durations = Durations()
    durations.add(0.5, 100)
    durations.add(1000.0)
    durations.add(1.0, 0)
    times = durations.times()
    assert times.counts[BOUNDS.index(0.005)] == 100
    assert times.counts[-1] == 1
    assert sum(times.counts) == 101
    assert times.seconds == 1000.5


def test_parts_with_the_same_labels_are_added_up() -> None:
    parts = Parts()
    all_of_them = [Counting(3), Counting(4), Counting(5, {"topic": "mail"})]
    for each in all_of_them:
        each.durations.add(0.001, 2)
        parts.add(each)
    found = {each.labels["topic"]: each for each in parts.read()}
    assert found["orders"].counts == {"published": 7}
    assert found["orders"].gauges == {"waiting": 2}
    assert sum(found["orders"].times["publish"].counts) == 4
    assert found["mail"].counts == {"published": 5}


def test_the_counters_of_a_part_that_has_ended_stay_and_its_gauges_go() -> None:
    parts = Parts()
    first = Counting(3)
    parts.add(first)
    parts.end(first)
    parts.end(first)
    second = Counting(4)
    parts.add(second)
    (found,) = parts.read()
    assert found.counts == {"published": 7}
    assert found.gauges == {"waiting": 1}


def test_a_part_that_fails_is_left_out() -> None:
    parts = Parts()
    both = Broken(1), Counting(4)
    for each in both:
        parts.add(each)
    (found,) = parts.read()
    assert found.counts == {"published": 4}
    assert parts.failures == 1


def test_a_child_begins_with_nothing() -> None:
    parts = Parts()
    some = [Counting(1), Counting(2)]
    for each in some:
        parts.add(each)
    parts.end(some[0])
    parts.forget()
    assert parts.read() == []


def test_of_gauges_that_every_process_tells_the_highest_counts() -> None:
    both = [Reading({}, {}, {"lag": 5.0, "waiting": 1.0}), Reading({}, {}, {"lag": 7.0, "waiting": 2.0})]
    (found,) = merged(both, frozenset({"lag"}))
    assert found.gauges == {"lag": 7.0, "waiting": 3.0}
    assert Times().seconds == 0
