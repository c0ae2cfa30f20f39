"""Medians, shares and results of the benchmark: a row that fails or is missing never passes."""

from __future__ import annotations

import pytest

from tests.benchmarks.figures import Run, Target, judge, median, metric, percentile, ratios

RATE = Target("half of raw", "ours", "rate", at_least=0.5, beside="raw")


def runs(row: str, *rates: float) -> list[Run]:
    return [Run(row, repeat, {"rate": rate}) for repeat, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("values", "middle"), [([7], 7), ([3, 1, 2], 2), ([4, 1, 3, 2], 2.5), ([1, 1, 1000], 1), ([5, -5], 0)]
)
def test_median(values: list[float], middle: float) -> None:
    assert median(values) == middle


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])


@pytest.mark.parametrize(
    ("percent", "value"), [(50, 50), (99, 99), (99.5, 100), (100, 100), (0, 1), (0.5, 1)]
)
def test_percentile_is_the_smallest_value_that_covers_so_many(percent: float, value: float) -> None:
    assert percentile([float(each) for each in range(1, 101)], percent) == value


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([3.0], 99) == 3.0


def test_a_figure_is_the_median_of_all_repeats() -> None:
    assert metric(runs("ours", 10, 30, 20), "ours", "rate") == 20


@pytest.mark.parametrize("bad", [Run("ours", 2, error="broke"), Run("ours", 2, missing="x"), Run("ours", 2)])
def test_a_row_with_one_bad_repeat_has_no_figure(bad: Run) -> None:
    assert metric([*runs("ours", 10, 30), bad], "ours", "rate") is None


def test_shares_are_paired_by_repeat_whatever_order_the_rows_ran_in() -> None:
    backwards = list(reversed(runs("raw", 100, 400, 200)))
    assert ratios([*runs("ours", 50, 100, 100), *backwards], "ours", "raw", "rate") == [0.5, 0.25, 0.5]


def test_a_share_is_the_median_of_the_paired_ones_and_not_the_share_of_the_medians() -> None:
    mine, theirs = runs("ours", 100, 200, 300), runs("raw", 300, 200, 100)
    judgement = judge(RATE, [*mine, *theirs])
    assert judgement.reached == 1.0
    assert ratios([*mine, *theirs], "ours", "raw", "rate") == [1 / 3, 1.0, 3.0]


@pytest.mark.parametrize(("mine", "result"), [(50.0, "pass"), (49.99, "miss"), (80.0, "pass")])
def test_the_limit_itself_passes_and_a_hair_less_does_not(mine: float, result: str) -> None:
    assert judge(RATE, [*runs("ours", mine), *runs("raw", 100)]).result == result


@pytest.mark.parametrize(("reached", "result"), [(25.0, "pass"), (25.01, "miss"), (0.0, "pass")])
def test_at_most(reached: float, result: str) -> None:
    target = Target("p99", "ours", "p99_ms", at_most=25)
    assert judge(target, [Run("ours", 0, {"p99_ms": reached})]).result == result


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ([], "raw was not run"),
        ([Run("raw", 0, missing="pip install x")], "raw: pip install x"),
        ([Run("raw", 0, error="broke")], "raw: broke"),
        ([Run("raw", 0, {"p50_ms": 1})], "raw reported no rate"),
        (runs("raw", 100, 100), "ours and raw were not run the same number of times"),
    ],
)
def test_what_cannot_be_compared_is_not_judged_and_says_why(others: list[Run], reason: str) -> None:
    judgement = judge(RATE, [*runs("ours", 1000), *others])
    assert (judgement.result, judgement.reason) == ("not judged", reason)


def test_a_yardstick_of_zero_proves_nothing() -> None:
    assert judge(RATE, [*runs("ours", 10), *runs("raw", 0)]).result == "not judged"


def test_a_target_has_one_limit() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Target("none", "ours", "rate")
    with pytest.raises(ValueError, match="exactly one"):
        Target("both", "ours", "rate", at_least=1, at_most=2)
