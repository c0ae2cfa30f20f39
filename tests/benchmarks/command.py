"""The command `python -m tests.benchmarks`: choose, run with progress, show, write.

Answers go to stdout, progress to stderr.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from tests.benchmarks.environment import observe
from tests.benchmarks.figures import Scenario
from tests.benchmarks.harness import Outcome, Runner
from tests.benchmarks.harness import Progress as OnStep
from tests.benchmarks.report import Environment, as_json, cells, head_of, markdown, result_line
from tests.benchmarks.scenarios import NAMES, scenarios

__all__ = ["NAMES", "choose", "run_bench"]


def run_bench(
    *,
    names: Sequence[str],
    rows: Sequence[str],
    repeats: int,
    quick: bool,
    seconds: int | None,
    json_wanted: bool,
    markdown_file: Path | None,
    bootstrap: str | None,
) -> int:
    """Run it; the exit code is 1 when a row failed or a target was missed. `ValueError` for names nobody knows."""
    chosen = choose(scenarios(quick, seconds), names, rows)
    if seconds is not None and all(scenario.name != "failing" for scenario in chosen):
        raise ValueError(
            "--seconds: only the scenario 'failing' has them; add --scenario failing, or leave it out"
        )
    # Before, not after: the load that the benchmark itself makes says nothing.
    environment = observe(repeats, quick, embedded=bootstrap is None)
    with _shown() as on_step:
        outcomes = Runner(chosen, repeats, not quick, bootstrap, on_step).run()
    if json_wanted:
        print(json.dumps(as_json(outcomes, environment), ensure_ascii=False))
    else:
        _print(outcomes, environment)
    if markdown_file is not None:
        markdown_file.parent.mkdir(parents=True, exist_ok=True)
        markdown_file.write_text(markdown(outcomes, environment), encoding="utf-8")
    return int(any(outcome.failed for outcome in outcomes))


def choose(available: Sequence[Scenario], names: Sequence[str], rows: Sequence[str]) -> list[Scenario]:
    """The named scenarios with the named rows; no names means all. Scenarios that keep no row are left out."""
    known = [scenario.name for scenario in available]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no scenario {unknown[0]!r}; there are {', '.join(known)}")
    wanted = [scenario for scenario in available if not names or scenario.name in names]
    if not rows:
        return wanted
    have = dict.fromkeys(row.name for scenario in wanted for row in scenario.rows)
    if strange := [name for name in rows if name not in have]:
        raise ValueError(f"no row {strange[0]!r}; there are {', '.join(have)}")
    narrowed = [replace(each, rows=[row for row in each.rows if row.name in rows]) for each in wanted]
    return [scenario for scenario in narrowed if scenario.rows]


@contextmanager
def _shown() -> Iterator[OnStep]:
    console = Console(stderr=True)
    if not console.is_terminal:
        started = time.monotonic()

        def plain(text: str, done: int, of: int) -> None:
            print(
                f"[{time.monotonic() - started:5.0f} s] {done + 1}/{of} {text}", file=sys.stderr, flush=True
            )

        yield plain
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def draw(text: str, done: int, of: int) -> None:
            progress.update(task, description=text, completed=done, total=of)

        yield draw


def _print(outcomes: Sequence[Outcome], environment: Environment) -> None:
    console = Console(highlight=False)
    # A pipe has no width, and a figure that is cut off is worse than a long line.
    console = console if console.is_terminal else Console(highlight=False, width=240)
    for line in environment.lines():
        console.print(Text(line, style="dim"))
    for outcome in outcomes:
        console.print(Text(f"\n{outcome.scenario.title}", style="bold"))
        console.print(Text(outcome.scenario.setting, style="dim"))
        console.print(_table(outcome))
        for judgement in outcome.judgements:
            style = {"pass": "green", "miss": "bold red", "not judged": "yellow"}[judgement.result]
            console.print(Text(result_line(judgement), style=style))


def _table(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    metrics = len(outcome.scenario.metrics)
    for place, head in enumerate(head_of(outcome)):
        table.add_column(head, justify="right" if 0 < place <= metrics else "left", overflow="fold")
    for row in outcome.scenario.rows:
        style = "bold" if row.ours else ""
        table.add_row(*(Text(cell, style=style) for cell in cells(outcome, row)))
    return table
