"""`archive`: topics to Parquet or Delta Lake, partitioned by date and topic, each message once."""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING, Any

import click

from kafka_pubsub.errors import FailedPrecondition

from ..job import Context, Job, Outcome, follow_options, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["JOB", "run"]


def run(
    context: Context,
    *,
    topics: tuple[str, ...],
    pattern: str | None,
    to: str,
    form: Any,
    schema: IO[str] | None,
    checkpoint: str | None,
    compact: bool,
    **streaming: Any,
) -> Outcome:
    """Runs the job."""
    if bool(topics) == bool(pattern):
        raise click.UsageError("give --topic (it can be repeated) or --pattern")
    from ..archives import OURS, open_archive
    from ..streams import Streaming, prepare
    from ..transforms.avro import decoded

    spark, stream = context.spark(), Streaming(**streaming)
    archive = open_archive(spark, to, form)
    about = {"topics": ",".join(sorted(topics)) or f"pattern {pattern}", "to": archive.files.root}
    going = prepare(context, spark, stream, checkpoint or archive.files.full(f"{OURS}/checkpoint"), about)
    _check_belongs(archive, going)
    topic = re.compile(pattern) if pattern else list(topics)
    found = going.messages(spark, topic, beside=_beside())
    if schema is not None:
        found = decoded(found, schema.read())

    def take(batch: DataFrame, number: int) -> int | None:
        from .. import marks

        archive.append(batch, marks.query_of(going.checkpoint) or "", number)
        if compact and stream.follow and number % COMPACT_EVERY == COMPACT_EVERY - 1:
            archive.compact()
        return None

    going.go(found, take)
    together = archive.compact() if compact else 0
    facts = {
        "batches": going.batches,
        "compacted_files": together,
        "lost": going.lost,
        "to": archive.files.root,
    }
    return Outcome(facts, f"{going.batches} batches archived to {to}, {together} small files put together")


#: Batches between two compactions of a job that follows.
COMPACT_EVERY = 50


def _beside() -> dict[str, Any]:
    """What an archive adds to a message."""
    from pyspark.sql import functions as F

    from ..transforms.rows import published

    # Found of the record and not of `publish_time`: that would be a step of its own, which copies every body.
    return {"archived_at": F.current_timestamp(), "date": F.to_date(published())}


def _check_belongs(archive: Any, going: Any) -> None:
    """An archive goes on only with the checkpoint that it was made with: batches are told apart by their numbers."""
    from .. import marks

    query, _ = archive.last()
    mine = marks.query_of(going.checkpoint)
    if query is not None and query != mine:
        raise FailedPrecondition(
            f"{archive.files.root} was filled with another checkpoint than "
            f"{going.checkpoint.root}: name that one with --checkpoint, or archive to another path"
        )
    if query is None and marks.last_batch(going.checkpoint) >= 0:
        raise FailedPrecondition(
            f"checkpoint {going.checkpoint.root} has archived before, and {archive.files.root} is empty: choose "
            "another checkpoint to begin anew"
        )


JOB = Job(
    "archive",
    """Keep what topics hold, as Parquet or as a Delta table, partitioned by date and topic.

    Each message is in the archive once, whatever is killed when: start the same command again. Small files are put
    together at the end. `kafka_pubsub_spark.archived(spark, PATH)` reads it.
    """,
    [
        option("--topic", "topics", multiple=True, metavar="NAME", help="A topic. Can be repeated."),
        option("--pattern", metavar="REGEX", help="All topics of this name, also those that come later."),
        option("--to", required=True, metavar="PATH", help="The archive."),
        option(
            "--format", "form", type=click.Choice(["parquet", "delta"]), default="parquet", show_default=True
        ),
        option(
            "--schema",
            type=click.File(encoding="utf-8"),
            help="An Avro schema: bodies are kept decoded as well.",
        ),
        option("--checkpoint", metavar="PATH", help="Default: inside the archive."),
        option("--compact/--no-compact", default=True, show_default=True, help="Put small files together."),
        *follow_options(),
    ],
    [
        ("what is there, then end", "--topic orders --to /data/archive"),
        ("go on, a batch a minute", "--topic orders --to /data/archive --follow --every '60 seconds'"),
    ],
    run,
)
