"""`python -m tests.benchmarks`: this client beside its peers; docs/benchmarks.md is made by it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tests.benchmarks.command import run_bench

__all__ = ["compare"]


@click.command(
    epilog="""\b
Examples:
  # everything, as docs/benchmarks.md has it
  python -m tests.benchmarks --repeat 3 --markdown docs/benchmarks-new.md
  # one scenario
  python -m tests.benchmarks --scenario pull
  # see that it all runs, in a few minutes
  python -m tests.benchmarks --quick
  # a shorter outage of one key
  python -m tests.benchmarks --scenario failing --seconds 120
  # only the yardstick
  python -m tests.benchmarks --scenario pull --row raw
"""
)
@click.option(
    "--scenario",
    "names",
    multiple=True,
    metavar="NAME",
    help="publish, pull, handler, stuck, latency, memory, kill, nacks, nacks_default, nacks_1000, failing, parked, "
    "parked_keys, members, exactly_once, delays, lateness, waiting, routers, growing, lanes_urgent, "
    "lanes_few, lanes_many, lanes_rate, lanes_classes, ends, pauses, apps, push, observed, multicast, "
    "multicast_in_turn, multicast_latency, multicast_locality, multicast_new_topics, home_away, records, "
    "start or workers; can be repeated.",
)
@click.option("--row", "rows", multiple=True, metavar="NAME", help="Only these rows, e.g. ours, raw.")
@click.option(
    "--repeat",
    "repeats",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Medians of so many runs.",
)
@click.option(
    "--seconds",
    type=click.IntRange(1, 1500),
    help="How long the one key fails in the scenario failing; its figure asks for 600, which is the default (4 with "
    "--quick).",
)
@click.option("--quick", is_flag=True, help="Tiny sizes: shows that everything runs, judges nothing.")
@click.option(
    "--markdown",
    "markdown_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the tables to this file.",
)
@click.option("--bootstrap", "-b", metavar="HOST:PORT", help="Measure on this cluster.")
@click.option("--json", "json_wanted", is_flag=True, help="JSON on stdout.")
def compare(
    names: tuple[str, ...],
    rows: tuple[str, ...],
    repeats: int,
    seconds: int | None,
    quick: bool,
    markdown_file: Path | None,
    bootstrap: str | None,
    json_wanted: bool,
) -> None:
    """Measure this client beside its peers, each row in a fresh process.

    Starts a temporary embedded Kafka for each scenario, unless --bootstrap names a cluster. The peers need
    `pip install -e '.[bench]'` and, for Parallel Consumer, a JDK; a row whose part is missing names the missing
    package.

    Exits with 1 when a row failed or a target was missed.
    """
    try:
        code = run_bench(
            names=names,
            rows=rows,
            repeats=repeats,
            quick=quick,
            seconds=seconds,
            json_wanted=json_wanted,
            markdown_file=markdown_file,
            bootstrap=bootstrap,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    sys.exit(code)


if __name__ == "__main__":
    compare()
