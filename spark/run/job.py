"""Defines a job: a name, options, and a function that takes a context and returns an outcome.

Theory. The same job runs as `kafka-pubsub spark run NAME` and under spark-submit (`submit.py`). Both make their
commands from the `Job`, so options, help, exit codes and errors are the same.

Rules
1. A job's module doesn't import pyspark when it is imported, so that its options can be shown without pyspark.
2. Progress is printed line by line on stderr. The outcome is one text for a person, or one JSON object.
3. An outcome that isn't ok ends with exit code 1, as every failure of this program does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, PubSubError

from ..base.connection import Connection
from ..base.spark_session import cause_line, is_of_spark, jvm
from .progress import METRICS_PATH, metrics_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "JOBS",
    "Context",
    "Job",
    "Outcome",
    "execute",
    "find",
    "follow_options",
    "option",
    "pairs",
    "seconds_of",
    "table_options",
]

#: The jobs. Each is a folder beside this one, whose `job.py` holds its `JOB`.
JOBS = ("archive", "audit", "replay", "cdc")
#: Texts by which Java says that there is no memory left, and what to do about it.
_NO_MEMORY = ("OutOfMemoryError", "Java heap space", "GC overhead limit exceeded")
_MORE = (
    "give it more with --conf spark.driver.memory=4g (on a cluster also spark.executor.memory), or let a streaming job "
    "take less at once by --max-per-batch"
)


class Outcome(NamedTuple):
    """The result of a job: `facts` for JSON, `text` for a person, and whether all is well (`ok`)."""

    facts: Mapping[str, Any]
    text: str
    ok: bool = True


@dataclass
class Context:
    """Where a job runs, and how it reports its progress (`note`)."""

    name: str
    connection: Connection
    note: Callable[[str], None]
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    #: The port on which Spark's metrics are served; None: they aren't served.
    metrics_port: int | None = None

    def spark(self, conf: Mapping[str, str] | None = None) -> SparkSession:
        """Returns a session for the job, and starts Spark first if it doesn't run yet.

        `conf` are settings that the job needs, unless --conf replaces them (default: none).
        Raises `FailedPrecondition` over Spark Connect, or if `metrics_port` is set and the session can't serve metrics
        there.
        """
        from ..base.spark_session import OF_A_JOB, is_connect, is_remote, session

        if is_connect(self.master):
            raise self._over_connect()
        served = {} if self.metrics_port is None else metrics_conf(self.metrics_port)
        wanted = {**(conf or {}), **served, **self.conf}
        made = session(f"kafka_pubsub {self.name}", master=self.master, conf=wanted)
        if is_remote(made):
            raise self._over_connect()
        if served:
            self._tell_metrics(made)
        # The job gets a session with its own settings and views, so that it changes nothing in a user's session.
        found = made.newSession()
        for name, value in OF_A_JOB.items():
            found.conf.set(name, value)
        return found

    def _over_connect(self) -> FailedPrecondition:
        return FailedPrecondition(
            f"{self.name} needs Spark's JVM in its own process, so it can't run over Spark Connect: run it with "
            f"spark-submit $(kafka-pubsub spark submit-args) {self.name}, or call messages(spark, TOPIC) in a program "
            "of your own"
        )

    def _tell_metrics(self, spark: SparkSession) -> None:
        """Notes the address of the metrics; raises `FailedPrecondition` if an existing session doesn't serve them."""
        page = jvm(spark) and spark.sparkContext.uiWebUrl
        if not page or not page.endswith(f":{self.metrics_port}"):
            raise FailedPrecondition(
                f"--metrics-port {self.metrics_port}: this Spark session was started without it; give it its settings "
                "(docs/spark.md, Progress) or leave the option out"
            )
        self.note(f"metrics: {page}{METRICS_PATH}")


class Job(NamedTuple):
    """One job. `run` takes a context, and the options by name."""

    name: str
    help: str
    options: Sequence[click.Option]
    #: For each example its heading ("": none) and its options.
    examples: Sequence[tuple[str, str]]
    run: Callable[..., Outcome]

    def parameters(self) -> list[click.Parameter]:
        """Returns the job's own options, and those that every job has."""
        shared = [
            option(
                "--master",
                metavar="URL",
                help="Where Spark runs, e.g. local[4] or spark://HOST:7077. Default: what spark-submit says, else "
                "local[*] (this machine, all cores).",
            ),
            option(
                "--conf",
                multiple=True,
                metavar="KEY=VALUE",
                help="A setting of Spark, e.g. spark.driver.memory=4g; it replaces one that the job sets. Can be "
                "repeated. "
                "Default: what spark-defaults.conf says.",
            ),
            option(
                "--metrics-port",
                type=click.IntRange(1, 65535),
                metavar="PORT",
                help="Serve Spark's metrics, and what a streaming job has read, as Prometheus' text on this port of "
                f"the driver, at {METRICS_PATH}. Default: they aren't served.",
            ),
        ]
        return [*self.options, *shared]


def option(*names: str, **settings: Any) -> click.Option:
    """Makes an option of a command."""
    return click.Option(list(names), **settings)


def follow_options() -> list[click.Option]:
    """Returns the options of every streaming job."""
    return [
        option(
            "--follow",
            is_flag=True,
            help="Stay and take what is published from now on as well. Default: end when all is read.",
        ),
        option(
            "--every",
            default="10 seconds",
            show_default=True,
            metavar="INTERVAL",
            help="With --follow: how often a batch begins, e.g. '10 seconds'. Longer means fewer and larger files.",
        ),
        option(
            "--max-per-batch",
            type=click.IntRange(1),
            default=500_000,
            show_default=True,
            metavar="MESSAGES",
            help="How many messages a batch reads at most, over all partitions. Less needs less memory and disk, and "
            "repeats less after a kill; more is faster.",
        ),
        option(
            "--lost",
            type=click.Choice(["fail", "skip"]),
            default="fail",
            show_default=True,
            help="What to do when messages that should be read next were deleted (by retention, or with their topic): "
            "'fail' stops and names their offsets; 'skip' names them and goes on without them.",
        ),
    ]


def _none_if_never(_: click.Context, __: click.Parameter, value: str) -> str | None:
    return None if value.strip().lower() == "never" else value


def table_options() -> list[click.Option]:
    """Returns the options of the streaming jobs that write Delta tables."""
    return [
        option(
            "--optimize-every",
            callback=_none_if_never,
            default="1 hour",
            show_default=True,
            metavar="INTERVAL",
            help="How often small files are put together (Delta's OPTIMIZE), between two batches or at the end. "
            "'never': another program does it.",
        ),
        option(
            "--vacuum-every",
            callback=_none_if_never,
            default="1 day",
            show_default=True,
            metavar="INTERVAL",
            help="How often files are deleted that were replaced (Delta's VACUUM). They stay for 7 days, so readers "
            "at work aren't disturbed. 'never': another program does it.",
        ),
    ]


def seconds_of(spark: SparkSession, text: str, name: str) -> float:
    """Returns the seconds of a span of time, as Spark reads it; `InvalidArgument` names the option `name`."""
    # A text that Spark can't read is null, also in its ANSI mode.
    from pyspark.sql import functions as F

    # As a column, because Delta's parser for Spark 4.1 binds no parameters.
    given = spark.range(1).select(F.lit(text).alias("span"))
    found = given.selectExpr("unix_micros(timestamp_seconds(0) + try_cast(span AS interval))").collect()[0][0]
    if found is None or found < 0:
        raise InvalidArgument(
            f"{name} {text!r} isn't a span of time: write a number and a unit, e.g. '10 seconds' or '1 hour'"
        )
    return float(found / 1e6)


def execute(job: Job, context: Context, options: Mapping[str, Any]) -> Outcome:
    """Runs a job. An error of Spark becomes a `FailedPrecondition` with one line that a person can read."""
    try:
        return job.run(context, **options)
    except (PubSubError, click.ClickException):
        raise
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            f"{job.name} needs the Python package {error.name} where its driver runs: install it there, or send it "
            "along (--archives, an image)"
        ) from error
    except Exception as error:
        if not (_has_ended(error) or is_of_spark(error)):
            raise
        try:
            text = _describe(error)
        except Exception as later:
            # The Java process ended when it was asked for the cause.
            if not _has_ended(later):
                raise
            text = _describe(later)
        raise FailedPrecondition(f"{job.name}{text}") from error


def _describe(error: Exception) -> str:
    """Returns what a person can do about an error of Spark; asks the Java process for its cause."""
    if _has_ended(error):
        return f": Spark's Java process has ended; its last lines are above. If its memory ran out, {_MORE}"
    said = cause_line(error)
    if any(text in f"{said} {error}" for text in _NO_MEMORY):
        return f": Spark's memory ran out ({said}): {_MORE}"
    return f" failed in Spark: {said} (KAFKA_PUBSUB_SPARK_LOG=WARN shows Spark's own log)"


def _has_ended(error: Exception) -> bool:
    """Returns whether an error says that Spark's Java process doesn't answer any more."""
    return isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"


def pairs(values: Sequence[str], name: str) -> dict[str, str]:
    """Parses `KEY=VALUE` arguments of the option `name`."""
    found = {}
    for each in values:
        key, separator, value = each.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{name}: {each!r} is not KEY=VALUE")
        found[key] = value
    return found


def find(name: str) -> Job:
    """Imports and returns the job of this name."""
    found: Job = importlib.import_module(f"..{name}.job", __package__).JOB
    return found
