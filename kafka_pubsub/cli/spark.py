"""`kafka-pubsub spark`: starts the pipeline, which lies beside this package and isn't imported by it.

Rules
1. The pipeline is `kafka_pubsub_spark` where it was installed with this package, `spark` in a clone: whichever
   lies beside it. A package `spark` of another project is never taken.
2. Nothing here imports pyspark; a job does when it runs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.command import Command, Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from typing import Protocol

    class Outcome(Protocol):
        """The outcome of a job."""

        facts: dict[str, JsonValue]
        text: str
        ok: bool

    class Job(Protocol):
        """A job, as spark/run/job.py defines it."""

        name: str
        help: str
        examples: Sequence[tuple[str, str]]

        def parameters(self) -> list[click.Parameter]: ...
        def run(self, context: object, **options: object) -> Outcome: ...


__all__ = ["pipeline", "spark"]

#: The folder of this package.
BESIDE = Path(__file__).resolve().parents[2]
_NAMES = ("kafka_pubsub_spark", "spark")


def pipeline() -> str:
    """Returns the name by which the pipeline is imported."""
    for name in _NAMES:
        if (BESIDE / name / "run").is_dir():
            if str(BESIDE) not in sys.path:
                sys.path.insert(0, str(BESIDE))
            return name
    raise FailedPrecondition(
        "the pipeline isn't beside this package: install kafka-pubsub-orderly[spark] again"
    )


class Jobs(Group):
    """One command for each job, made when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of the jobs in the pipeline's order."""
        return list(_module("run.job").JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the job as a command."""
        job = _module("run.job")
        return _command(job.find(cmd_name)) if cmd_name in job.JOBS else None


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{pipeline()}.{name}")


def _command(job: Job) -> click.Command:
    examples = [(what, f"kafka-pubsub spark run {job.name} {line}") for what, line in job.examples]

    @click.pass_obj
    def callback(session: Session, /, **options: object) -> int:
        return _run(session, job, options)

    return Command(job.name, params=job.parameters(), callback=callback, help=job.help, examples=examples)


def _run(session: Session, job: Job, options: dict[str, object]) -> int:
    address = session.address()
    if not address:
        raise FailedPrecondition(
            "no Kafka to talk to: start the embedded one with `kafka-pubsub up`, or name yours with "
            "--bootstrap HOST:PORT"
        )
    own, connection = _module("run.job"), _module("base.connection")
    context = own.Context(
        job.name,
        connection.connection_of(address, session.java_settings()),
        session.output.note,
        options.pop("master"),
        own.pairs(options.pop("conf"), "--conf"),
        options.pop("metrics_port"),
    )
    # Python on the executors of a local master must be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    outcome = own.execute(job, context, options)
    session.output.result(outcome.facts, outcome.text)
    return 0 if outcome.ok else 1


@click.group(
    cls=Group,
    examples=[
        ("all jobs", "kafka-pubsub spark run --help"),
        ("keep what a topic holds", "kafka-pubsub spark run archive --topic orders --to /data/archive"),
    ],
)
def spark() -> None:
    """Run jobs of the pipeline on Spark: archive, audit, replay and others.

    Needs `pip install 'kafka-pubsub-orderly[spark]'` and Java 17 or 21.
    """


@click.command(
    cls=Jobs,
    examples=[
        ("what a job takes", "kafka-pubsub spark run archive --help"),
        ("", "kafka-pubsub spark run audit --topic orders"),
    ],
)
def run() -> None:
    """Run a job. --config takes settings of the Java client here, e.g. security.protocol=SASL_SSL."""


@click.command(
    cls=Command,
    examples=[
        (
            "on a cluster",
            "spark-submit $(kafka-pubsub spark submit-args) archive -b HOST:PORT --topic orders --to hdfs:///archive",
        ),
        (
            "a program of your own",
            "spark-submit $(kafka-pubsub spark submit-args --program sessions.py) --topic user-events",
        ),
        ("for Spark Connect", "start-connect-server.sh $(kafka-pubsub spark submit-args --connect)"),
    ],
)
@click.option(
    "--zip", "target", type=click.Path(dir_okay=False, path_type=Path), help="Also write what nodes need."
)
@click.option(
    "--program",
    type=click.Path(exists=True, dir_okay=False),
    help="Start this program of yours, whose options follow. Default: the program that runs jobs.",
)
@click.option(
    "--connect",
    is_flag=True,
    help="Print what start-connect-server.sh takes instead. Default: what spark-submit takes.",
)
@click.pass_obj
def submit_args(session: Session, target: Path | None, program: str | None, connect: bool) -> None:
    """Print what spark-submit takes before a job's name or a program's options: packages, files, the file to start.

    With --zip the Python of this package is written to that file, for drivers and nodes where it isn't installed.
    """
    import importlib.util

    if importlib.util.find_spec("pyspark") is None:
        raise FailedPrecondition("pyspark isn't installed: pip install 'kafka-pubsub-orderly[spark]'")
    found = _module("base.spark_session")
    version = importlib.import_module("importlib.metadata").version("pyspark")
    if target is not None and target.suffix != ".zip":
        raise InvalidArgument(f"--zip {target}: Spark takes Python files by their ending; name it .zip")
    if target is not None:
        target = found.bundle(target.absolute() if connect else target, driver=not connect)
    if connect:
        words = found.connect_options(version, target)
    else:
        words = ["--packages", found.packages(version)]
        words += [] if target is None else ["--py-files", str(target)]
        words.append(program or str(BESIDE / pipeline() / "submit.py"))
    session.output.result({"arguments": words}, " ".join(words))


spark.add_command(run, "run")
spark.add_command(submit_args, "submit-args")
