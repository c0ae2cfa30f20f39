"""How many records are taken inline, when none are, and when a walk takes too long."""

from __future__ import annotations

import pytest

from kafka_pubsub.subscribe.workers.inline_runner import (
    LEFT,
    LONGEST,
    LONGEST_DOUBT,
    LONGEST_PENALTY,
    LONGEST_RUN,
    PENALTY,
    QUICK,
    SHORTEST,
    SLACK,
    InlineRun,
    Pace,
)
from tests.unit.subscribe.workers.walking import (
    lease_runner_of,
)

# The pace


def record_inline(
    pace: Pace, times: int = 1, *, left: int = 0, each: float = QUICK / 2, now: float = 0.0
) -> None:
    for _ in range(times):
        count = max(pace.limit(now), SHORTEST)
        pace.record_inline(count, left, count * each, now)


def test_reads_grow_while_callbacks_are_quick_and_no_longer_than_allowed() -> None:
    pace, limits = Pace(), []
    for _ in range(12):
        limits.append(pace.limit(0.0))
        record_inline(pace)
    assert limits[:4] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST, 8 * SHORTEST]
    assert limits[-1] == LONGEST == max(limits)


def slow(pace: Pace, now: float, *, alone: bool = True) -> None:
    """Walks that take long, until none is asked for any more."""
    while limit := pace.limit(now):
        pace.record_inline(limit, 0, 1.0, now, alone=alone)


def test_a_slow_callback_ends_inline_running_for_a_while() -> None:
    pace = Pace()
    pace.record_inline(SHORTEST, 0, 2 * SLACK, 5.0)
    assert pace.limit(5.0 + PENALTY - 0.01) == 0
    assert pace.limit(5.0 + PENALTY) == SHORTEST


def test_one_slow_run_after_many_quick_ones_only_makes_the_next_ones_shorter() -> None:
    pace = Pace()
    record_inline(pace, 12)
    assert pace.limit(5.0) == LONGEST
    pace.record_inline(LONGEST, 0, 1.0, 5.0)
    assert SHORTEST < pace.limit(5.0) < LONGEST
    for _ in range(3):
        pace.record_inline(pace.limit(5.0), 0, 1.0, 5.0)
    assert not pace.limit(5.0)


def test_the_while_doubles_to_a_limit_and_is_short_again_when_callbacks_have_proved_quick() -> None:
    pace, now, penalties = Pace(), 0.0, []
    for _ in range(10):
        slow(pace, now)
        penalties.append(next(s for s in (PENALTY * 2**n for n in range(10)) if pace.limit(now + s)))
        now += 1000.0
    assert penalties[:3] == [PENALTY, 2 * PENALTY, 4 * PENALTY]
    slow(pace, now)
    assert pace.limit(now + LONGEST_PENALTY - 1) == 0
    assert pace.limit(now + LONGEST_PENALTY) == SHORTEST
    now += 1000.0
    record_inline(pace, 12, now=now)
    slow(pace, now)
    assert pace.limit(now + PENALTY) == SHORTEST


def test_what_proves_nothing_does_not_end_inline_running_for_long() -> None:
    """Beside the pool's threads all that computes is slow; where the pool has no room, nothing was seen at all."""
    pace, now = Pace(), 0.0
    for at in range(20):
        if at % 2:
            slow(pace, now, alone=False)
        else:
            while pace.limit(now):
                pace.hindered(now)
        assert pace.limit(now + LONGEST_DOUBT) == SHORTEST
        now += 1000.0
    assert not pace.limit(now - 1000.0 + LONGEST_DOUBT - 0.01)
    slow(pace, now)
    assert not pace.limit(now + LONGEST_DOUBT), "a proof counts the doubts before it"


def test_one_of_few_records_may_take_the_time_of_two() -> None:
    pace = Pace()
    pace.record_inline(1, 0, 1.9 * QUICK, 0.0)
    assert pace.limit(0.0) == 2 * SHORTEST


def test_callbacks_that_keep_many_messages_are_not_called_inline() -> None:
    pace = Pace()
    record_inline(pace, 12)
    record_inline(pace, left=int(LEFT * LONGEST))
    assert pace.limit(0.0)
    record_inline(pace, left=int(LEFT * LONGEST) + 1)
    assert not pace.limit(0.0)


# Who looks on


def test_a_callback_that_stands_is_found_by_how_long_nothing_has_moved() -> None:
    lease_runner, _ = lease_runner_of([b"a", b"b"])
    walk = InlineRun([lease_runner])
    assert walk.stands(5.0) == 0
    assert walk.stands(5.06) == pytest.approx(0.06)
    next(lease_runner._records)
    assert walk.stands(5.09) == 0
    assert walk.stands(5.11) == pytest.approx(0.02)


def test_a_run_whose_callbacks_never_stand_is_found_when_all_of_it_takes_long() -> None:
    lease_runner, _ = lease_runner_of([b"%d" % at for at in range(1000)])
    walk, now = InlineRun([lease_runner]), 5.0
    while walk.stands(now) < 0.05:
        next(lease_runner._records)
        now += 0.01
    assert LONGEST_RUN <= now - 5.0 < 2 * LONGEST_RUN


def test_a_run_without_lease_runners_can_be_looked_at() -> None:
    assert InlineRun([]).stands(1.0) == 0
