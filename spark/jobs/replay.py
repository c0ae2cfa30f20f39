"""`replay`: what an archive or a topic of dead letters holds, published again, in the order of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..bodies import Bodies, expect_options, schema_option
from ..job import Context, Job, Outcome, option
from ..transforms.protobuf import Protobuf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOB", "run"]

#: Messages that a dry run shows.
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
    """Runs the job."""
    if state is None and not dry_run:
        raise click.UsageError("give --state, where it is kept how far the replay has come; or --dry-run")
    # A task that fails shall not write its messages again: the portion is looked into and finished instead.
    spark = context.spark({"spark.task.maxFailures": "1"})
    from ..rejects import rejects_table
    from ..replays import Replay, filtered, planned
    from ..transforms.expectations import split
    from ..transforms.messages import check_topics

    check_topics(spark, to, context.place)
    source = filtered(_source(spark, context, archive, topic), where)
    left: DataFrame | None = None
    if schema is not None or expect:
        source, left = split(Bodies(schema).decoded(source, topic), expect)
    if dry_run or state is None:
        return _told(source, planned(source, rate), to, rate)
    from ..files import Files

    about = {"archive": archive or "", "topic": topic, "where": where or ""}
    replay = Replay(name or f"replay-{topic}", to, context.place, Files(spark, state), about, context.note)
    if left is not None:
        table = rejects_table(spark, rejects, state)
        table.check()
        # As one batch of this replay: when it is started again, the rows are there already.
        table.append(left, f"replay {replay.name} to {to}", 0)
    plan, written = replay.go(source, rate)
    facts = {"to": to, "name": replay.name, "messages": plan.total, "written": written, "dry_run": False}
    return Outcome(facts, f"{written:,} messages replayed to {to}, {plan.total:,} in all")


def _source(spark: SparkSession, context: Context, archive: str | None, topic: str) -> DataFrame:
    if archive is None:
        from ..transforms.messages import messages

        return messages(spark, topic, bootstrap=context.place.bootstrap, config=context.place.config)
    from pyspark.sql import functions as F

    from ..archives import archive_table

    return archive_table(spark, archive, option="--archive").read().where(F.col("topic") == topic)


def _told(source: DataFrame, plan: Any, target: str, rate: float | None) -> Outcome:
    rows = source.orderBy("topic", "partition", "offset").limit(SHOWN).collect()
    first = [
        {"message_id": row.message_id, "ordering_key": row.ordering_key, "bytes": len(row.data or b"")}
        for row in rows
    ]
    facts = {
        "to": target,
        "messages": plan.total,
        "portions": len(plan.portions),
        "first": first,
        "dry_run": True,
    }
    lines = [f"would replay {plan.total:,} messages to {target} in {len(plan.portions)} portions"]
    if rate is not None:
        lines.append(f"at {rate:,.0f} a second that takes {plan.total / rate:,.0f} s")
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
