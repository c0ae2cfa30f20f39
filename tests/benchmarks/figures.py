"""Figures beside their targets, and whether the targets are reached. Pure: no clock, no process, no file.

Theory: a scenario has rows (ours and the peers) and targets. Each repeat runs every row once, so a row ends up with
`Run` for each repeat. A figure is the median over the repeats. A comparison is the median of the *paired* ratios:
ours of a repeat beside the peer of the same repeat, because these two shared the machine's mood; the ratio of two
medians may pair the best minute of ours with the worst minute of the peer.

Rules
1. A row that failed or lacks a part has no figure; a target that needs the row is not judged, and says why. It never
   passes.
2. A target passes by the exact number, not by the rounded number that is shown.
3. A row counts only when every repeat worked: a median over the runs that happened to survive flatters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "Judgement",
    "Row",
    "Run",
    "Scenario",
    "Target",
    "judge",
    "median",
    "metric",
    "percentile",
    "ratios",
]

Parameter = int | float | str | bool | list[str] | list[int]
LeaseOutcome = Literal["pass", "miss", "not judged"]


@dataclass(frozen=True)
class Row:
    """A measurement: a function `module:name` that runs in a process of its own."""

    name: str
    title: str
    call: str
    ours: bool = False
    beside: str = ""
    """The row that this one is shown as a share of; none if empty."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """A figure that a row must reach: of its own, or as a share of the row `beside`."""

    text: str
    row: str
    metric: str
    at_least: float | None = None
    at_most: float | None = None
    beside: str | None = None

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"target {self.text!r} needs exactly one of at_least and at_most")


@dataclass(frozen=True)
class Scenario:
    """Rows that belong side by side, over the same data."""

    name: str
    title: str
    setting: str
    metrics: Mapping[str, str]
    """Which metrics the table shows, and the head of each column."""
    rows: Sequence[Row]
    targets: Sequence[Target]
    prepare: str | None = None
    preparation: Mapping[str, Parameter] = field(default_factory=dict)
    repeatable: bool = True
    """False where one run repeats in itself (twenty kills)."""


@dataclass(frozen=True)
class Run:
    """The report of a single process of a row."""

    row: str
    repeat: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    missing: str = ""
    """What to install, when a part of the row isn't there."""
    error: str = ""

    @property
    def worked(self) -> bool:
        return not self.missing and not self.error


@dataclass(frozen=True)
class Judgement:
    """A target, the figure reached, and whether it passes; `reason` says why nothing was judged."""

    target: Target
    reached: float | None
    result: LeaseOutcome
    reason: str = ""


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number the mean of the two in the middle."""
    if not values:
        raise ValueError("no values, no median")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values don't exceed (nearest rank); expects them sorted."""
    if not ordered:
        raise ValueError("no values, no percentile")
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def runs_of(runs: Iterable[Run], row: str) -> list[Run]:
    """The runs of a row, by repeat."""
    return sorted((run for run in runs if run.row == row), key=lambda run: run.repeat)


def metric(runs: Sequence[Run], row: str, name: str) -> float | None:
    """The median of a metric over the repeats; None unless every repeat worked and reported the metric."""
    own = runs_of(runs, row)
    if not own or any(not run.worked or name not in run.metrics for run in own):
        return None
    return median([run.metrics[name] for run in own])


def ratios(runs: Sequence[Run], row: str, beside: str, name: str) -> list[float]:
    """The row's metric over the other's, repeat by repeat; empty unless all repeats of both worked."""
    if metric(runs, row, name) is None or metric(runs, beside, name) is None:
        return []
    others = {run.repeat: run.metrics[name] for run in runs_of(runs, beside)}
    own = runs_of(runs, row)
    if {run.repeat for run in own} != set(others) or not all(others.values()):
        return []
    return [run.metrics[name] / others[run.repeat] for run in own]


def judge(target: Target, runs: Sequence[Run]) -> Judgement:
    """Hold the figure against the target."""
    if target.beside is None:
        reached = metric(runs, target.row, target.metric)
    else:
        paired = ratios(runs, target.row, target.beside, target.metric)
        reached = median(paired) if paired else None
    if reached is None:
        return Judgement(target, None, "not judged", _why_not(target, runs))
    enough = target.at_least is None or reached >= target.at_least
    little_enough = target.at_most is None or reached <= target.at_most
    return Judgement(target, reached, "pass" if enough and little_enough else "miss")


def _why_not(target: Target, runs: Sequence[Run]) -> str:
    for row in filter(None, (target.row, target.beside)):
        own = runs_of(runs, row)
        if not own:
            return f"{row} was not run"
        for run in own:
            if not run.worked:
                return f"{row}: {run.missing or run.error}"
        if metric(own, row, target.metric) is None:
            return f"{row} reported no {target.metric}"
    return f"{target.row} and {target.beside} were not run the same number of times"
