"""Outcomes as tables: for a terminal, as Markdown, as JSON. Pure: a report shows only its arguments.

A figure is the median of its repeats, a share the median of the repeats' shares (see `figures`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.figures import Judgement, Row, Run, median, metric, ratios, runs_of
from tests.benchmarks.harness import Outcome

__all__ = ["Environment", "as_json", "cells", "head_of", "markdown", "result_line", "share"]


@dataclass(frozen=True)
class Environment:
    """Where, when and with which versions the figures were measured."""

    date: str
    commit: str
    cores: int
    memory_gb: int
    system: str
    load: str
    versions: Mapping[str, str]
    repeats: int
    quick: bool

    def lines(self) -> list[str]:
        """A line for each thing a reader must know before comparing."""
        repeated = "one run each" if self.repeats == 1 else f"medians of {self.repeats} runs"
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [
            f"{self.date}, commit {self.commit}",
            f"{self.cores} cores, {self.memory_gb} GB of memory, {self.system}; load before the start: {self.load}",
            versions,
            f"{repeated}, a process per run" + ("; QUICK: these numbers mean nothing" if self.quick else ""),
        ]


def number(value: float) -> str:
    """Three digits are enough below 100; above, whole numbers in groups of three."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def head_of(outcome: Outcome) -> list[str]:
    """The heads of a scenario's columns."""
    return [
        "",
        *outcome.scenario.metrics.values(),
        *(["share"] if _has_shares(outcome) else []),
        "runs",
        "note",
    ]


def _has_shares(outcome: Outcome) -> bool:
    return any(row.beside for row in outcome.scenario.rows)


def cells(outcome: Outcome, row: Row) -> list[str]:
    """A row's cells, a cell for each head."""
    own = runs_of(outcome.runs, row.name)
    figures = [metric(outcome.runs, row.name, name) for name in outcome.scenario.metrics]
    shown = ["-" if figure is None else number(figure) for figure in figures]
    shares = [share(outcome, row)] if _has_shares(outcome) else []
    return [row.title, *shown, *shares, _spread(outcome, own), _note(own)]


def share(outcome: Outcome, row: Row) -> str:
    """The row as a share of the row beside which it stands."""
    name = next(iter(outcome.scenario.metrics))
    paired = ratios(outcome.runs, row.name, row.beside, name) if row.beside else []
    return f"{median(paired):.0%} of {row.beside}" if paired else ""


def _spread(outcome: Outcome, own: Sequence[Run]) -> str:
    name = next(iter(outcome.scenario.metrics))
    values = [run.metrics[name] for run in own if run.worked and name in run.metrics]
    if len(values) < 2:
        return str(len(values))
    return f"{len(values)}: {number(min(values))} to {number(max(values))}"


def _note(own: Sequence[Run]) -> str:
    for run in own:
        if run.missing:
            return f"not run, needs: {run.missing}"
        if run.error:
            return f"FAILED: {run.error}"
    return next((run.note for run in reversed(own) if run.note), "")


def result_line(judgement: Judgement) -> str:
    """A target, the figure and whether it passes, in a line."""
    target = judgement.target
    if judgement.reached is None:
        return f"{judgement.result.upper()}: {target.text} ({judgement.reason})"
    reached = number(judgement.reached)
    if target.beside is not None:
        reached = f"{judgement.reached:.1%} of {target.beside}"
    reason = f", {judgement.reason}" if judgement.reason else ""
    return f"{judgement.result.upper()}: {target.text} (reached {reached}{reason})"


def markdown(outcomes: Sequence[Outcome], environment: Environment) -> str:
    """The whole report as a Markdown page."""
    page = [
        "# Benchmarks",
        "",
        "Written by `python -m tests.benchmarks --markdown`; how it measures: `tests/benchmarks/`.",
        "",
    ]
    page += [f"- {line}" for line in environment.lines()]
    for outcome in outcomes:
        page += ["", f"## {outcome.scenario.title}", "", f"{outcome.scenario.setting}.", ""]
        heads = head_of(outcome)
        page += [
            _line(heads),
            _line(["---", *["---:"] * len(outcome.scenario.metrics), *_rest(heads, outcome)]),
        ]
        page += [_line(cells(outcome, row)) for row in outcome.scenario.rows]
        page += ["", *(f"- {result_line(each)}" for each in outcome.judgements)]
    return "\n".join(page) + "\n"


def _rest(heads: Sequence[str], outcome: Outcome) -> list[str]:
    return ["---"] * (len(heads) - 1 - len(outcome.scenario.metrics))


def _line(texts: Sequence[str]) -> str:
    safe = (" ".join(text.split()).replace("|", "\\|") for text in texts)
    return f"| {' | '.join(safe)} |"


def as_json(outcomes: Sequence[Outcome], environment: Environment) -> dict[str, object]:
    """Everything, every single run included."""
    return {
        "environment": {**vars(environment), "versions": dict(environment.versions)},
        "scenarios": [_scenario_json(outcome) for outcome in outcomes],
    }


def _scenario_json(outcome: Outcome) -> dict[str, object]:
    names = outcome.scenario.metrics
    return {
        "name": outcome.scenario.name,
        "title": outcome.scenario.title,
        "setting": outcome.scenario.setting,
        "rows": [
            {
                "name": row.name,
                "title": row.title,
                "medians": {name: metric(outcome.runs, row.name, name) for name in names},
                "runs": [
                    {
                        "repeat": run.repeat,
                        "metrics": dict(run.metrics),
                        "note": run.note,
                        "missing": run.missing,
                        "error": run.error,
                    }
                    for run in runs_of(outcome.runs, row.name)
                ],
            }
            for row in outcome.scenario.rows
        ],
        "targets": [
            {
                "text": each.target.text,
                "row": each.target.row,
                "metric": each.target.metric,
                "beside": each.target.beside,
                "at_least": each.target.at_least,
                "at_most": each.target.at_most,
                "reached": each.reached,
                "result": each.result,
                "reason": each.reason,
            }
            for each in outcome.judgements
        ],
    }
