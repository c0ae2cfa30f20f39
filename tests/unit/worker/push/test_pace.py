"""How many requests run at a time, by any answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.worker.push.pace import FIRST, LONGEST_PAUSE, Pace


@given(st.integers(1, 200), st.lists(st.booleans(), max_size=300))
def test_it_stays_between_one_and_the_most(most: int, answers: list[bool]) -> None:
    pace = Pace.first(most)
    for ok in answers:
        before = pace
        pace = pace.succeeded() if ok else pace.failed()
        assert 1 <= pace.now <= most
        assert pace.now >= before.now if ok else pace.now <= before.now


@given(st.integers(1, 1000))
def test_success_leads_to_the_most(most: int) -> None:
    pace = Pace.first(most)
    assert pace.now == min(FIRST, most)
    for _ in range(4 * most + 8):
        pace = pace.succeeded()
    assert pace.now == most


@given(st.integers(1, 1000))
def test_an_endpoint_that_fails_gets_one_request_at_a_time(most: int) -> None:
    pace = Pace(most, most)
    for _ in range(24):
        pace = pace.failed()
    assert pace.now == 1


@given(st.integers(4, 1000), st.integers(2, 50))
def test_a_key_that_fails_among_others_slows_nothing(most: int, others: int) -> None:
    pace = Pace(most, most)
    for _ in range(100):
        for _ in range(others):
            pace = pace.succeeded()
        pace = pace.failed()
    assert pace.now == most


def test_a_pause_holds_up_every_request_and_only_grows() -> None:
    pace = Pace.first(10).paused(60, now=100.0)
    assert not pace.may_begin(0, 159.9)
    assert pace.may_begin(0, 160.0)
    assert not pace.paused(1, now=100.0).may_begin(0, 159.9)
    assert pace.paused(10 * LONGEST_PAUSE, now=100.0).may_begin(0, 100.0 + LONGEST_PAUSE)


def test_no_more_run_than_may() -> None:
    pace = Pace.first(10)
    assert [pace.may_begin(running, 0.0) for running in (0, 3, 4)] == [True, True, False]
