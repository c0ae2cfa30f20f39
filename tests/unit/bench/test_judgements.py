"""The judges of members that come and go, and of durable acks: clean diaries pass, each planted anomaly is found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tests.benchmarks.journal import ACK, DURABLE, NACK, START, Record
from tests.benchmarks.rows import exactly_once, members
from tests.benchmarks.rows.members import Event

MS = 1_000_000
LAG = 200 * MS
#: Messages 0 to 9 are meant to be sent 100 ms apart, by turns of keys 0 and 1.
EVERY = 100 * MS
INTENDED = range(0, 10 * EVERY, EVERY)


def handled(places: Iterable[int], member: int = 0, late: int = 5 * MS) -> list[Event]:
    """Each place starts so late, and is acked a millisecond later."""
    found = []
    for place in places:
        at = INTENDED[place] + late
        found += [Event(at, START, place % 2, place, member), Event(at + MS, ACK, place % 2, place, member)]
    return found


def judged(events: Iterable[Event], killed: dict[int, int] | None = None) -> members.Result:
    return members.judge(events, killed or {}, INTENDED, LAG)


def counts(result: members.Result) -> dict[str, int]:
    found = {name: getattr(result, name) for name in ("redelivered", "excess", "lost", "disordered")}
    return {name: count for name, count in found.items() if count}


def test_members_that_do_well_are_clean() -> None:
    result = judged([*handled(range(0, 10, 2)), *handled(range(1, 10, 2), member=1)])
    assert counts(result) == {}
    assert result.stall_s == pytest.approx(0.005)


def test_a_stall_is_found_and_only_the_longest_counts() -> None:
    late = [
        *handled([0, 1, 2]),
        *handled([3], late=700 * MS),
        *handled([5], late=2500 * MS),
        *handled([4, 6, 7, 8]),
    ]
    result = judged([*late, *handled([9], late=2400 * MS)])
    assert result.stall_s == pytest.approx(2.5)


def test_a_stall_is_measured_to_the_first_start_and_not_to_a_redelivery() -> None:
    nacked = [Event(5 * MS, START, 0, 0, 0), Event(6 * MS, NACK, 0, 0, 0)]
    result = judged([*nacked, *handled(range(10), late=3000 * MS)])
    assert result.stall_s == pytest.approx(3.0), "of the others"
    result = judged([*nacked, *handled([0], late=3000 * MS), *handled(range(1, 10))])
    assert result.stall_s == pytest.approx(0.005)


def test_what_was_nacked_may_come_again() -> None:
    nacked = [Event(5 * MS, START, 0, 0, 0), Event(6 * MS, NACK, 0, 0, 0)]
    assert counts(judged([*nacked, *handled([0], late=90 * MS), *handled(range(1, 10))])) == {}


def test_what_was_in_flight_at_a_kill_may_come_again() -> None:
    unanswered = [Event(INTENDED[4] + 5 * MS, START, 0, 4, 0)]
    result = judged(
        [*handled(range(4)), *unanswered, *handled(range(4, 10), member=1, late=50 * MS)], {0: INTENDED[4]}
    )
    assert counts(result) == {"redelivered": 1}


def test_what_was_acked_just_before_a_kill_may_come_again_and_what_was_acked_long_before_may_not() -> None:
    killed = {0: INTENDED[3] + 150 * MS}
    fresh = [*handled(range(4)), *handled([3], member=1, late=500 * MS), *handled(range(4, 10), member=1)]
    assert counts(judged(fresh, killed)) == {"redelivered": 1}
    old = [*handled(range(4)), *handled([1], member=1, late=500 * MS), *handled(range(4, 10), member=1)]
    result = judged(old, killed)
    assert counts(result) == {"redelivered": 1, "excess": 1}
    assert result.examples == ["1 of key 1 again with member 1, acked by 0 494 ms before"]


def test_in_peace_nothing_that_was_acked_may_come_again() -> None:
    result = judged([*handled(range(10)), *handled([9], member=1, late=50 * MS)])
    assert counts(result) == {"redelivered": 1, "excess": 1}


def test_a_message_that_nobody_acked_is_lost() -> None:
    assert counts(judged(handled(range(9)))) == {"lost": 1}
    assert counts(judged([*handled(range(9)), Event(INTENDED[9], START, 1, 9, 0)])) == {"lost": 1}


def test_a_key_out_of_order_is_found_across_members() -> None:
    assert counts(
        judged([*handled([0, 1, 3, 4, 5, 6, 7, 8, 9]), *handled([2], member=1, late=300 * MS)])
    ) == {"disordered": 1}


# Durable acks


def told(place: int, *, key: int = 0) -> list[Record]:
    return [Record(kind, key, place, 0) for kind in (START, ACK, DURABLE)]


def untold(place: int) -> list[Record]:
    return told(place)[:2]


def anomalies(*lives: Sequence[Record], published: int = 3) -> dict[str, int]:
    result = exactly_once.judge(lives, {0: published})
    names = ("again", "untrue", "lost", "disordered")
    assert bool(result.examples) == any(getattr(result, name) for name in names)
    return {name: count for name in names if (count := getattr(result, name))}


def test_durable_acks_in_one_life_and_over_a_kill_are_clean() -> None:
    assert anomalies([*told(0), *told(1), *told(2)]) == {}
    result = exactly_once.judge([[*told(0), *untold(1)], [*told(1), *told(2)]], {0: 3})
    assert (result.deliveries, result.redelivered, result.durable, result.again) == (4, 1, 3, 0)


def test_answers_may_come_late_and_a_nacked_message_again() -> None:
    nacked = [Record(START, 0, 1, 0), Record(NACK, 0, 1, 0)]
    late = [*untold(0), *nacked, told(0)[2], *told(1), *told(2)]
    result = exactly_once.judge([late], {0: 3})
    assert (result.redelivered, result.again, result.untrue) == (0, 0, 0)


def test_an_ack_that_was_stored_and_never_told_is_no_loss() -> None:
    assert anomalies([*told(0), *untold(1)], told(2)) == {}


def test_a_delivery_after_a_durable_ack_is_found_in_the_same_life_and_in_a_later_one() -> None:
    assert anomalies([*told(0), *untold(0), *told(1), *told(2)]) == {"again": 1}
    assert anomalies([*told(0), *told(1)], [*untold(1), *told(2)]) == {"again": 1}
    assert anomalies(told(0), told(1), [*untold(0), *told(2)]) == {"again": 1}


def test_an_answer_for_a_delivery_that_isnt_the_newest_is_found() -> None:
    started = [*untold(0), Record(START, 0, 0, 0), told(0)[2], told(0)[1]]
    assert anomalies([*started, *told(1), *told(2)]) == {"untrue": 1}


def test_an_answer_told_twice_is_found() -> None:
    assert anomalies([*told(0), told(0)[2], *told(1), *told(2)]) == {"untrue": 1}


def test_an_answer_of_a_life_before_is_found() -> None:
    assert anomalies(untold(0), [told(0)[2], *told(1), *told(2)]) == {"untrue": 1}


def test_what_nobody_acked_and_what_came_out_of_order_are_found() -> None:
    assert anomalies([*told(0), *told(1)]) == {"lost": 1}
    assert anomalies([*told(0), *told(2), *told(1)])["disordered"] == 2
