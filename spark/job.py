"""What a job is: a name, options, and a function from a context to an outcome.

Theory. The same job runs as `kafka-pubsub spark run NAME` and under spark-submit (`submit.py`). Both make their
commands from what is said here, so options, help, exit codes and errors are the same.

Rules
1. A job's module imports no pyspark: its options are shown by a machine without it.
2. Progress is told line by line, on stderr; the outcome is one text for a person, or one JSON object.
3. An outcome that isn't ok ends with exit code 1, as every failure of this program does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS", "Context", "Job", "Outcome", "find", "follow_options", "option", "pairs"]

#: Name -> the module that holds its `JOB`.
JOBS = {
    "archive": "archive",
    "audit": "audit",
    "replay": "replay",
    "hot-keys": "hot_keys",
    "sessions": "sessions",
    "cdc": "cdc",
    "telemetry": "telemetry",
}


class Outcome(NamedTuple):
    """What a job has to say. `facts` are JSON."""

    facts: Mapping[str, Any]
    text: str
    ok: bool = True


@dataclass
class Context:
    """Where a job runs, and whom it tells."""

    name: str
    place: Place
    note: Callable[[str], None]
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def spark(self, conf: Mapping[str, str] | None = None) -> SparkSession:
        """The session, started when a job first needs it; `conf`: what this job wants and a user may change."""
        from .session import OF_A_JOB, session

        found = session(f"kafka_pubsub {self.name}", master=self.master, conf={**(conf or {}), **self.conf})
        for name, value in OF_A_JOB.items():
            found.conf.set(name, value)
        return found


class Job(NamedTuple):
    """One job. `run` takes a context and the options by name."""

    name: str
    help: str
    options: Sequence[click.Option]
    #: What an example shows ("" continues the one above) and its options.
    examples: Sequence[tuple[str, str]]
    run: Callable[..., Outcome]

    def parameters(self) -> list[click.Parameter]:
        """Its own options, and those that every job has."""
        shared = [
            option(
                "--master",
                metavar="URL",
                help="Spark's master. Default: what spark-submit says, else local[*].",
            ),
            option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting. Can be repeated."),
        ]
        return [*self.options, *shared]


def option(*names: str, **settings: Any) -> click.Option:
    """An option."""
    return click.Option(list(names), **settings)


def follow_options() -> list[click.Option]:
    """What every streaming job takes."""
    return [
        option(
            "--follow",
            is_flag=True,
            help="Go on with what comes. Default: end when all is read.",
        ),
        option(
            "--every",
            default="10 seconds",
            show_default=True,
            metavar="INTERVAL",
            help="With --follow: a batch.",
        ),
        option(
            "--max-per-batch",
            type=click.IntRange(1),
            default=500_000,
            show_default=True,
            help="Messages.",
        ),
        option(
            "--lost",
            type=click.Choice(["fail", "skip"]),
            default="fail",
            show_default=True,
            help="When messages that should be read are gone (retention): say which and fail, or go on without.",
        ),
    ]


def pairs(values: Sequence[str], name: str) -> dict[str, str]:
    """`KEY=VALUE` arguments."""
    found = {}
    for each in values:
        key, separator, value = each.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{name}: {each!r} is not KEY=VALUE")
        found[key] = value
    return found


def find(name: str) -> Job:
    """The job of this name."""
    found: Job = importlib.import_module(f".jobs.{JOBS[name]}", __package__).JOB
    return found
