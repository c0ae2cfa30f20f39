"""`kafka-pubsub bench`: the door to tests/benchmarks, where the scenarios, the peers and the harness are.

The benchmark belongs to the repository, not to the installed package: it compiles a Java file and fetches peers that
no user needs. Where the repository isn't there, the command says so.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.session import Session
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

__all__ = ["bench"]

#: The repository, when this file is in a clone; site-packages otherwise.
ROOT = Path(__file__).resolve().parents[2]


@click.command(
    cls=Command,
    examples=[
        (
            "everything, as docs/benchmarks.md has it",
            "kafka-pubsub bench --repeat 3 --markdown docs/benchmarks.md",
        ),
        ("one scenario", "kafka-pubsub bench --scenario pull"),
        ("see that it all runs, in a few minutes", "kafka-pubsub bench --quick"),
        ("a shorter outage of one key", "kafka-pubsub bench --scenario failing --seconds 120"),
        ("only the yardstick", "kafka-pubsub bench --scenario pull --row raw"),
    ],
)
@click.option(
    "--scenario",
    "names",
    multiple=True,
    metavar="NAME",
    help="publish, pull, handler, stuck, latency, memory, kill, nacks, nacks_default, nacks_1000, failing, parked, "
    "parked_keys, members or exactly_once; can be repeated.",
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
@click.pass_obj
def bench(
    session: Session,
    names: tuple[str, ...],
    rows: tuple[str, ...],
    repeats: int,
    seconds: int | None,
    quick: bool,
    markdown_file: Path | None,
) -> int:
    """Measure this client beside its peers, each row in a fresh process.

    Starts a temporary embedded Kafka for each scenario, unless --bootstrap names a cluster. The peers need
    `pip install -e '.[bench]'` and, for Parallel Consumer, a JDK; a row whose part is missing says what to install.

    Exits with 1 when a row failed or a target was missed.
    """
    if session.config:
        raise InvalidArgument(
            "--config: bench gives every row the same settings and takes none; leave it out."
        )
    if not (ROOT / "tests" / "benchmarks").is_dir():
        raise FailedPrecondition(
            "The benchmark is part of the repository and not of the installed package: clone the repository and run "
            "`pip install -e '.[bench]'` and `kafka-pubsub bench` in it."
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    command = importlib.import_module("tests.benchmarks.command")
    try:
        code: int = command.run_bench(
            names=names,
            rows=rows,
            repeats=repeats,
            quick=quick,
            seconds=seconds,
            json_wanted=session.as_json,
            markdown_file=markdown_file,
            bootstrap=session.bootstrap,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return code
