"""The job `archive` writes topics to a Delta table, each message once, and takes keys and old dates out of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

from ..reading.protobuf import Protobuf
from ..run.bodies import Bodies, expect_options, framing_options, schema_option
from ..run.job import Context, Job, Outcome, follow_options, option, seconds_of, table_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..base.tables import Table
    from ..run.streams import Run

__all__ = ["JOB", "run"]

_DAY = 86_400
#: Seconds between two looks for old dates.
_LOOK = 3600


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
    keep: str | None,
    forget: tuple[str, ...],
    **streaming: Any,
) -> Outcome:
    """Runs the job `archive`."""
    _check_usage(topics, pattern, keep, forget)
    if forget:
        return _forget(context, to, topics, forget, rejects)
    compiled = _compiled(pattern)
    spark = context.spark()
    from ..run.rejects import Rejects, rejects_table
    from ..run.streams import Streaming, prepare
    from .table import archive_table

    days = None if keep is None else _days_of(spark, keep)

    table = archive_table(spark, to, option="--to")
    about = {"topics": ",".join(sorted(topics)) or f"pattern {pattern}", "to": table.address}
    kept = checkpoint or table.checkpoint
    rejected = Rejects(rejects_table(spark, rejects, table), expect) if expect else None
    tables = [table] if rejected is None else [table, rejected.table]
    going = prepare(context, spark, Streaming(**streaming), kept, about, tables)
    _check_belongs(table, going)
    _check_decoded(table, decoded=schema is not None)
    dropped = None if days is None else _Dropped(going, table, days)
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
    if dropped is not None:
        facts["dropped"] = dropped.rows
        text += f", {dropped.rows:,} messages older than {keep} dropped"
    if rejected is not None:
        facts, text = {**facts, **rejected.facts()}, text + rejected.said()
    return Outcome(facts, going.said(text))


def _check_usage(
    topics: tuple[str, ...], pattern: str | None, keep: str | None, forget: tuple[str, ...]
) -> None:
    if forget and (pattern is not None or keep is not None):
        raise click.UsageError(
            "--forget goes with --to, --topic and --rejects only: nothing is archived then"
        )
    if not all(forget):
        raise InvalidArgument("--forget: a key cannot be empty")
    if not forget and bool(topics) == bool(pattern):
        raise click.UsageError("give --topic (it can be repeated) or --pattern")


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise InvalidArgument(f"--pattern {pattern!r} isn't a regular expression: {error}") from error


def _days_of(spark: SparkSession, keep: str) -> timedelta:
    seconds = seconds_of(spark, keep, "--keep")
    if seconds < _DAY or seconds % _DAY:
        raise InvalidArgument(f"--keep {keep!r}: an archive is kept for whole days, e.g. '90 days'")
    return timedelta(seconds=seconds)


class _Dropped:
    """Drops old dates from an archive while a job fills it."""

    def __init__(self, going: Run, table: Table, days: timedelta) -> None:
        from ..run.streams import Chore

        self.rows = 0
        self._table, self._days = table, days
        # Before the others: what is dropped needn't be put together.
        going.chores = {"keep": Chore(_LOOK, self._drop), **going.chores}

    def _drop(self, _: float | None) -> None:
        from .taken_out import drop_before

        if self._table.exists():
            self.rows += drop_before(self._table, datetime.now(UTC).date() - self._days)


def _forget(
    context: Context, archive: str, topics: tuple[str, ...], keys: tuple[str, ...], rejects: str | None
) -> Outcome:
    spark = context.spark()
    from ..run.rejects import rejects_table
    from .table import archive_table
    from .taken_out import forget

    table = archive_table(spark, archive, option="--to")
    aside = rejects_table(spark, rejects, table)
    if rejects is not None:
        # A table that was named and isn't there is an error.
        aside.read()
    deleted = forget(table, keys, topics, aside)
    text = f"{deleted:,} messages of {len(keys)} keys deleted from {archive}"
    return Outcome({"forgotten": deleted, "to": table.address}, text)


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


def _check_decoded(table: Table, *, decoded: bool) -> None:
    """Refuses an archive of decoded bodies: without --schema its new rows would have neither record nor problem."""
    if not decoded and table.query() is not None and "record" in table.read().columns:
        raise FailedPrecondition(
            f"{table.where} holds decoded bodies, in the column record: give --schema as at the last start, or archive "
            "to another path or name"
        )


JOB = Job(
    "archive",
    """Keep what topics hold in a Delta table, partitioned by topic and date (UTC).

    Each message is in the archive once, whatever is killed when: start the same command again. Small files are put
    together while it runs. `kafka_pubsub_spark.archived(spark, PATH)` reads it, and so does every reader of Delta.
    """,
    [
        option(
            "--topic",
            "topics",
            multiple=True,
            metavar="NAME",
            help="A topic to keep, with its lanes. Can be repeated. With --forget: look at this topic only (default: "
            "at all).",
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
            "--keep",
            metavar="INTERVAL",
            help="Delete messages that were published longer ago, e.g. '90 days': whole dates (UTC), once an hour and "
            "at the end. An audit knows from which date on the archive is kept. Default: all are kept.",
        ),
        option(
            "--forget",
            multiple=True,
            metavar="KEY",
            help="Delete the messages of this ordering key from the archive and from its rejected rows, and note a "
            "hash of the key, so that an audit knows. Can be repeated; with --topic, only those of the topic. Nothing "
            "is read from Kafka then: what comes later, or isn't archived yet, is archived. Default: no key.",
        ),
        *follow_options(),
        *table_options(),
    ],
    [
        ("what is there, then end", "--topic orders --to /data/archive"),
        ("go on, a batch a minute", "--topic orders --to /data/archive --follow --every '60 seconds'"),
        ("the last 90 days", "--topic orders --to /data/archive --follow --keep '90 days'"),
        ("without a person's messages", "--to /data/archive --forget user-17 --forget user-18"),
    ],
    run,
)
