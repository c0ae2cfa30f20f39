"""The tables of the benchmark: a reader's view of figures, shares, failures and results."""

from __future__ import annotations

import json

from tests.benchmarks.figures import Row, Run, Scenario, Target
from tests.benchmarks.harness import Outcome
from tests.benchmarks.report import Environment, as_json, cells, head_of, markdown, result_line

SCENARIO = Scenario(
    "pull",
    "Pull",
    "2 messages",
    {"rate": "msg/s"},
    [
        Row("ours", "us", "m:f", ours=True, beside="raw"),
        Row("raw", "the yardstick", "m:g"),
        Row("peer", "a | peer", "m:h", beside="raw"),
    ],
    [
        Target("50 % of raw", "ours", "rate", at_least=0.5, beside="raw"),
        Target("200,000 msg/s", "ours", "rate", at_least=200_000),
        Target("2 x the peer", "ours", "rate", at_least=2, beside="peer"),
    ],
)
RUNS = [
    Run("ours", 0, {"rate": 250_000.0}),
    Run("ours", 1, {"rate": 190_000.0}),
    Run("ours", 2, {"rate": 199_999.9}),
    *(Run("raw", repeat, {"rate": 400_000.0}) for repeat in range(3)),
    *(Run("peer", repeat, missing="a JDK") for repeat in range(3)),
]
ENVIRONMENT = Environment(
    "2030-01-01 00:00 UTC", "abc", 4, 25, "Linux", "0.1", {"Python": "3.11"}, repeats=3, quick=False
)


def outcome(judged: bool = True) -> Outcome:
    return Outcome(SCENARIO, list(RUNS), judged)


def test_a_row_shows_its_median_its_share_and_its_spread() -> None:
    assert head_of(outcome()) == ["", "msg/s", "share", "runs", "note"]
    assert cells(outcome(), SCENARIO.rows[0]) == ["us", "200,000", "50% of raw", "3: 190,000 to 250,000", ""]


def test_a_row_that_could_not_run_says_what_it_needs() -> None:
    assert cells(outcome(), SCENARIO.rows[2]) == ["a | peer", "-", "", "0", "not run, needs: a JDK"]


def test_results_go_by_the_exact_number_and_not_by_the_one_shown() -> None:
    lines = [result_line(each) for each in outcome().judgements]
    assert lines == [
        "MISS: 50 % of raw (reached 50.0% of raw)",
        "MISS: 200,000 msg/s (reached 200,000)",
        "NOT JUDGED: 2 x the peer (peer: a JDK)",
    ]


def test_a_quick_run_judges_nothing_but_still_shows_what_was_reached() -> None:
    quick = outcome(judged=False)
    assert {each.result for each in quick.judgements} == {"not judged"}
    assert result_line(quick.judgements[1]) == "NOT JUDGED: 200,000 msg/s (reached 200,000, a quick run)"
    assert not quick.failed


def test_a_miss_or_a_broken_row_fails_and_a_missing_part_does_not() -> None:
    assert outcome().failed
    fine = Outcome(
        SCENARIO, [Run("ours", 0, {"rate": 300_000}), Run("raw", 0, {"rate": 1}), Run("peer", 0, missing="x")]
    )
    assert not fine.failed
    assert Outcome(SCENARIO, [*fine.runs[:2], Run("peer", 0, error="broke")]).failed


def test_targets_of_rows_that_were_not_asked_for_are_left_out() -> None:
    only_raw = Scenario("pull", "Pull", "", {"rate": "msg/s"}, SCENARIO.rows[1:2], SCENARIO.targets)
    assert Outcome(only_raw, RUNS).judgements == []


def test_markdown_is_a_table_that_no_cell_can_break() -> None:
    page = markdown([outcome()], ENVIRONMENT)
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}
    assert "- 4 cores, 25 GB of memory" in page
    assert "medians of 3 runs" in page
    assert "- MISS: 50 % of raw (reached 50.0% of raw)" in page


def test_a_page_of_a_quick_run_says_so() -> None:
    quick = Environment("d", "c", 1, 1, "s", "0", {}, repeats=1, quick=True)
    assert "these numbers mean nothing" in markdown([outcome()], quick)


def test_json_keeps_every_run() -> None:
    report = json.loads(json.dumps(as_json([outcome()], ENVIRONMENT)))
    ours = report["scenarios"][0]["rows"][0]
    assert [run["metrics"]["rate"] for run in ours["runs"]] == [250_000.0, 190_000.0, 199_999.9]
    assert ours["medians"] == {"rate": 199_999.9}
    assert [target["result"] for target in report["scenarios"][0]["targets"]] == [
        "miss",
        "miss",
        "not judged",
    ]
    assert report["environment"]["cores"] == 4
