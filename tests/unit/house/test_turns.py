"""Similar slow tests take turns in CI: each has its day, and of each kind some run every day."""

from __future__ import annotations

from tests.turns import BY_TURNS, DAYS, SPARK, of_this_day

FILE = "tests/faults/test_rounds.py"
THEME = min(BY_TURNS)
MONTH = range(20261120, 20261131)

SINGLE = f"{FILE}::alone"
PAIR = [f"{FILE}::pair[{number}]" for number in range(2)]
MANY = [f"{FILE}::many[{number}]" for number in range(7)]
SIMILAR = [f"{THEME}::test_{name}" for name in "abcd"]
OF_SPARK = [f"{SPARK[0]}test_one.py::test_{name}" for name in "abc"]
ALL = [SINGLE, *PAIR, *MANY, *SIMILAR, *OF_SPARK]


def test_a_test_that_stands_for_itself_runs_every_day() -> None:
    assert all(SINGLE in of_this_day(ALL, day) for day in MONTH)


def test_of_similar_tests_some_run_every_day_and_never_all() -> None:
    for day in MONTH:
        for group in (PAIR, MANY, SIMILAR, OF_SPARK):
            assert 0 < len(of_this_day(ALL, day) & set(group)) <= -(-len(group) // 2)


def test_within_a_few_days_every_test_has_run() -> None:
    for first in MONTH[:-DAYS]:
        assert set().union(*(of_this_day(ALL, first + later) for later in range(DAYS))) == set(ALL)
