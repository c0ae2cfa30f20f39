"""The job `replay` publishes again what an archive or a topic of dead letters holds, in the order of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..reading.protobuf import Protobuf
from ..run.bodies import Bodies, expect_options, schema_option
from ..run.job import Context, Job, Outcome, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..base.tables import Table
    from .plan import Plan, Source

__all__ = ["JOB", "run"]

_TRIES = "spark.task.maxFailures"
#: How many messages a dry run shows.
SHOWN = 10


def run(
    context: Context,
    *,
    archive: str | None,
    topic: str,
    to: str,
    where: str | None,
    rate: float | None,
    name: str | None,
    state: str | None,
    dry_run: bool,
    schema: str | Protobuf | None,
    expect: tuple[str, ...],
    rejects: str | None,
) -> Outcome:
    """Runs the job `replay`."""
    if state is None and not dry_run:
        raise click.UsageError("give --state, where it is kept how far the replay has come; or --dry-run")
    # Spark must not repeat a task that failed, because it would write its messages twice. Instead the next run reads
    # which messages of the portion are in the topic, and writes the rest.
    spark = context.spark({_TRIES: "1"})
    from ..reading.messages import check_topics
    from ..writing.outgoing import target_of
    from .plan import Replay, looked_at, planned

    check_topics(spark, to, context.connection)
    target_of(spark, to, context.connection)
    source = _source(spark, context, archive, topic, where)
    aside = None if schema is None and not expect else _Aside(Bodies(schema), topic, expect)
    if aside is not None:
        aside.split(source.read([]))
    if dry_run or state is None:
        plan = planned(source, rate)
        found = source.read(plan.ranges)
        return _told(*looked_at(found if aside is None else aside.split(found)[0], SHOWN), plan, to, rate)
    from ..base.files import Files

    about = {"archive": archive or "", "topic": topic, "where": where or ""}
    replay = Replay(
        name or f"replay-{topic}", to, context.connection, Files(spark, state), about, context.note
    )
    if aside is not None:
        from ..run.rejects import rejects_table

        aside.table, aside.query = rejects_table(spark, rejects, state), f"replay {replay.name} to {to}"
        aside.table.check()
    written, total = replay.go(source, spark, rate, aside)
    facts = {"to": to, "name": replay.name, "messages": total, "written": written, "dry_run": False}
    return Outcome(facts, f"{written:,} messages replayed to {to}, {total:,} in all")


class _Aside:
    """Splits off the messages that aren't as expected, and writes them to a table."""

    def __init__(self, bodies: Bodies, topic: str, conditions: tuple[str, ...]) -> None:
        self._bodies, self._topic, self._conditions = bodies, topic, conditions
        self._held: DataFrame | None = None
        #: The table that they are written to, and the query id under which they are written.
        self.table: Table | None = None
        self.query = ""

    def split(self, messages: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Returns the messages that are kept, and the others with their reasons."""
        from ..reading.expectations import split

        return split(self._bodies.decoded(messages, self._topic), self._conditions)

    def __call__(self, messages: DataFrame, number: int) -> DataFrame:
        """Returns the messages that are kept; writes the others to the table, once for each number."""
        if self._held is not None:
            self._held.unpersist()
        # The messages are read once for both parts.
        self._held = messages.persist()
        kept, others = self.split(self._held)
        if self.table is not None:
            self.table.append(others, self.query, number)
        return kept


def _source(
    spark: SparkSession, context: Context, archive: str | None, topic: str, where: str | None
) -> Source:
    from .plan import ArchiveSource, TopicSource

    if archive is None:
        return TopicSource(spark, context.connection, topic, where)
    from ..archive.table import archive_table

    return ArchiveSource(archive_table(spark, archive, option="--archive"), topic, where)


def _told(total: int, rows: list[Any], plan: Plan, target: str, rate: float | None) -> Outcome:
    first = [
        {"message_id": row.message_id, "ordering_key": row.ordering_key, "bytes": len(row.data or b"")}
        for row in rows
    ]
    portions = len(list(plan.portions()))
    facts = {"to": target, "messages": total, "portions": portions, "first": first, "dry_run": True}
    lines = [f"would replay {total:,} messages to {target} in {portions} portions"]
    if rate is not None:
        lines.append(f"at {rate:,.0f} a second that takes {total / rate:,.0f} s")
    lines += [f"  {each['message_id']} key {each['ordering_key']!r} {each['bytes']} bytes" for each in first]
    return Outcome(facts, "\n".join(lines))


JOB = Job(
    "replay",
    """Publish again what an archive or a topic (of dead letters, say) holds, in the order of each key.

    Each message is marked as replayed and says where it was published first. Stopped or killed, the same command goes
    on where it was, and writes nothing twice. Subscribers of the target get the messages like any other.
    """,
    [
        option(
            "--archive",
            metavar="TABLE",
            help="The archive to read: a path or a name in a catalog. Default: the topic itself is read.",
        ),
        option(
            "--topic",
            required=True,
            metavar="NAME",
            help="The topic whose messages are replayed: as the archive holds it, or, without --archive, as Kafka "
            "does.",
        ),
        option(
            "--to",
            required=True,
            metavar="NAME",
            help="The topic that the messages are published to. It must exist, and may be the one that is read.",
        ),
        option(
            "--where",
            metavar="SQL",
            help="Replay only messages of which this condition over their columns holds, e.g. attributes['kind'] = "
            "'created'. Default: all.",
        ),
        option(
            "--rate",
            type=click.FloatRange(min=0.001),
            metavar="MESSAGES",
            help="Publish at most so many messages a second, so that subscribers keep up. Default: as fast as it goes.",
        ),
        option(
            "--name",
            metavar="NAME",
            help="The name of this replay, with which the ids of its messages begin. Default: replay-TOPIC.",
        ),
        option(
            "--state",
            metavar="PATH",
            help="The directory that keeps the plan and how far the replay has come. One for each replay. "
            "Default: none, which only a --dry-run can do without.",
        ),
        schema_option("Messages whose bodies don't fit aren't replayed."),
        *expect_options("STATE-rejects-table"),
        option(
            "--dry-run",
            is_flag=True,
            help="Say how many messages would be published and which are the first, and publish nothing.",
        ),
    ],
    [
        ("look first", "--topic orders.dead --to orders --dry-run"),
        (
            "dead letters, back to where they came from",
            "--topic orders.dead --to orders --state /data/replay-1",
        ),
        (
            "a day of an archive, slowly",
            "--archive /data/archive --topic orders --to orders-again --rate 500 --state /data/replay-2 "
            "--where \"date = '2026-01-14'\"",
        ),
    ],
    run,
)
