"""The job `archive` writes topics to a Delta table, each message once, and copies parts of it to plain files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

from ..reading.protobuf import Protobuf
from ..run.bodies import Bodies, expect_options, framing_options, schema_option
from ..run.job import Context, Job, Outcome, follow_options, option, table_options, time_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..base.tables import Table
    from ..run.streams import Run

__all__ = ["JOB", "run"]


def run(
    context: Context,
    *,
    topics: tuple[str, ...],
    pattern: str | None,
    to: str,
    schema: str | Protobuf | None,
    framing: str,
    registry: str | None,
    subject: str | None,
    expect: tuple[str, ...],
    rejects: str | None,
    checkpoint: str | None,
    export: str | None,
    into: str | None,
    since: str | None,
    until: str | None,
    **streaming: Any,
) -> Outcome:
    """Runs the job `archive`."""
    _check_usage(topics, pattern, export, into, since or until)
    if into is not None:
        return _export(context, to, into, topics, since, until)
    compiled = _compiled(pattern)
    spark = context.spark()
    from ..run.rejects import Rejects, rejects_table
    from ..run.streams import Streaming, prepare
    from .table import archive_table

    table = archive_table(spark, to, option="--to")
    about = {"topics": ",".join(sorted(topics)) or f"pattern {pattern}", "to": table.address}
    kept = checkpoint or table.checkpoint
    rejected = Rejects(rejects_table(spark, rejects, table), expect) if expect else None
    tables = [table] if rejected is None else [table, rejected.table]
    going = prepare(context, spark, Streaming(**streaming), kept, about, tables)
    _check_belongs(table, going)
    if schema is None:
        _check_not_decoded(table)
    found = going.messages(spark, compiled or list(topics), beside=_beside())
    found = Bodies(schema, framing, registry, subject).decoded(found, topics[0] if len(topics) == 1 else None)
    if rejected is not None:
        rejected.check_conditions(found)

    def known(batch: DataFrame) -> DataFrame:
        # The ids of new topics are only known in the batch.
        return batch.withColumn("topic_id", going.topic_id(batch["topic"]))

    def take(batch: DataFrame, number: int) -> int | None:
        going.append(known(batch), table, number)
        return None

    def take_expected(batch: DataFrame, number: int) -> None:
        if rejected is not None:
            going.append(known(rejected.taken(going, batch, number)), table, number)

    if rejected is None:
        going.go(found, take)
    else:
        going.go_counting(found, take_expected)
    text = f"{going.batches} batches archived to {to}, {going.optimized} small files put together"
    facts = going.facts(None, table.address)
    if rejected is not None:
        facts, text = {**facts, **rejected.facts()}, text + rejected.said()
    return Outcome(facts, going.said(text))


def _check_usage(
    topics: tuple[str, ...], pattern: str | None, export: str | None, into: str | None, times: str | None
) -> None:
    if (export is None) != (into is None):
        raise click.UsageError("--export says which kind of files and --into where: give both or neither")
    if into is None and times is not None:
        raise click.UsageError("--since and --until are for --export: an archive takes all that a topic has")
    if into is None and bool(topics) == bool(pattern):
        raise click.UsageError("give --topic (it can be repeated) or --pattern")
    if into is not None and pattern is not None:
        raise click.UsageError("--pattern doesn't go with --export: name the topics with --topic")


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise InvalidArgument(f"--pattern {pattern!r} isn't a regular expression: {error}") from error


def _export(
    context: Context, archive: str, into: str, topics: tuple[str, ...], since: str | None, until: str | None
) -> Outcome:
    first, last = time_of(since, "--since"), time_of(until, "--until")
    from .table import export

    copied = export(context.spark(), archive, into, topics=topics, since=first, until=last, option="--to")
    return Outcome({"exported": copied, "into": into}, f"{copied:,} messages of {archive} copied to {into}")


def _beside() -> dict[str, Any]:
    """Returns the columns that an archive adds to a message."""
    from pyspark.sql import functions as F

    from ..reading.rows import published

    # The date comes from the record: from `publish_time` it would be a separate step, which copies every body.
    return {"archived_at": F.current_timestamp(), "date": F.to_date(published())}


def _check_belongs(table: Table, going: Run) -> None:
    """Refuses a checkpoint that the archive wasn't made with: its batches would add the same messages again."""
    from ..run import ownership

    query, mine = table.query(), ownership.query_of(going.checkpoint)
    if query is not None and query != mine:
        raise FailedPrecondition(
            f"{table.where} was filled with another checkpoint than {going.checkpoint.root}: name that one with "
            "--checkpoint, or archive to another path or name"
        )
    if query is None and ownership.last_batch(going.checkpoint) >= 0:
        raise FailedPrecondition(
            f"{table.where} is gone: checkpoint {going.checkpoint.root} has archived there before. Restore the "
            "archive, or choose another checkpoint to begin anew"
        )


def _check_not_decoded(table: Table) -> None:
    """Refuses an archive of decoded bodies: without --schema its new rows would have neither record nor problem."""
    if table.query() is not None and "record" in table.read().columns:
        raise FailedPrecondition(
            f"{table.where} holds decoded bodies, in the column record: give --schema as at the last start, or archive "
            "to another path or name"
        )


JOB = Job(
    "archive",
    """Keep what topics hold in a Delta table, partitioned by topic and date (UTC).

    Each message is in the archive once, whatever is killed when: start the same command again. Small files are put
    together while it runs. `kafka_pubsub_spark.archived(spark, PATH)` reads it, and so does every reader of Delta.
    With --export nothing is read from Kafka: a part of the archive is copied to plain files.
    """,
    [
        option(
            "--topic",
            "topics",
            multiple=True,
            metavar="NAME",
            help="A topic to keep, with its lanes. Can be repeated. With --export: only this topic is copied (default: "
            "all).",
        ),
        option(
            "--pattern",
            metavar="REGEX",
            help="Keep all topics whose whole name fits this regular expression, also those that are made later; "
            "never the "
            "catalog or a retry topic. Default: the topics of --topic.",
        ),
        option(
            "--to",
            required=True,
            metavar="TABLE",
            help="The archive: a path, or a name in a catalog (schema.table or catalog.schema.table). It is made if "
            "nothing is there; what kafka-pubsub didn't make is refused.",
        ),
        schema_option(
            "Bodies are then kept decoded as well, in the column `record`; those that don't fit say why in `problem`."
        ),
        *framing_options(),
        *expect_options("TO-rejects (TO_rejects for a name)"),
        option(
            "--checkpoint",
            metavar="PATH",
            help="The directory that keeps how far the job has come. Default: TO-checkpoint, if --to is a path.",
        ),
        option(
            "--export",
            type=click.Choice(["parquet"]),
            help="Copy messages of the archive to plain files of this format, for programs that don't read Delta. "
            "Nothing is "
            "read from Kafka then. Default: messages are archived.",
        ),
        option(
            "--into",
            metavar="PATH",
            help="With --export: the directory of the copy, which must be empty or not there. It gets a directory for "
            "each "
            "topic and date.",
        ),
        option(
            "--since",
            metavar="TIME",
            help="With --export: copy only messages published from then on (ISO 8601, UTC unless it says otherwise). "
            "Default: from the first one on.",
        ),
        option(
            "--until",
            metavar="TIME",
            help="With --export: copy only messages published before then (ISO 8601, UTC unless it says otherwise). "
            "Default: up to the last one.",
        ),
        *follow_options(),
        *table_options(),
    ],
    [
        ("what is there, then end", "--topic orders --to /data/archive"),
        ("go on, a batch a minute", "--topic orders --to /data/archive --follow --every '60 seconds'"),
        (
            "a day as plain files",
            "--to /data/archive --export parquet --into /data/day --since 2026-01-14 --until 2026-01-15",
        ),
    ],
    run,
)
